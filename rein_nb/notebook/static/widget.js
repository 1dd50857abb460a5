// @ts-check
/**
 * The browser's end of a live transcript. Python renders and cleans; this file only puts things in their place.
 *
 * Every message is `[number, op, op, ...]` (see wire.py). Foreign text arrives either as a plain string, which is only ever
 * set as text, or as HTML that Python has cleaned. One store per model applies each message to every view and to one
 * detached copy of its own, from which a late view is cloned. A gap in the numbers, or a fresh page, asks for one snapshot.
 */

/** @typedef {[number, ...any[]]} Message */
/** @typedef {{ get(name: string): any, send(content: any): void, on(name: string, fn: (...args: any[]) => void): void, off(name: string, fn?: (...args: any[]) => void): void }} Model */

const ANNOUNCE_MS = 1000;
const SPARE_MS = 2000;
const NEAR_BOTTOM_PX = 48;
/** What no reference may bring into HTML. */
const UNSAFE = /[<>&\x80-\x9f]/;
/** What the control characters U+0080 to U+009F stand for in a finished block: the list `TAGS` of tail.py. */
const TAGS = ["hk", "hs", "hc", "hn", "hf", "hb", "hd"].map((name) => `<span class="rein-${name}">`).concat(
  '</span>|<pre class="rein-code">|</pre>|<p>|</p>|<li>|</li>|<tr>|</tr>|<td>|<td align="right">|</td>|<strong>|</strong>|<em>|</em>|<code>|</code>|<mrow>|</mrow>|<mi>|</mi>|<mn>|</mn>|<mo>'.split("|"));

/**
 * @param {string} tag
 * @param {string} className
 * @param {string} [text]
 * @returns {HTMLElement}
 */
function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

/**
 * @param {string} text
 * @param {string} act
 * @returns {HTMLElement}
 */
function button(text, act) {
  const node = element("button", "rein-button rein-" + act, text);
  node.setAttribute("type", "button");
  node.dataset.act = act;
  return node;
}

/**
 * An empty transcript: one pane per row and label.
 * @param {string[]} labels
 * @param {string[]} rows
 * @returns {HTMLElement}
 */
function skeleton(labels, rows) {
  const root = element("div", "rein-root rein-live jp-RenderedHTMLCommon mathjax_ignore tex2jax_ignore");
  root.setAttribute("role", "region");
  root.setAttribute("aria-label", "Agent run");
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  const bar = element("div", "rein-toolbar");
  const said = element("span", "rein-said", "Starting");
  said.setAttribute("data-role", "words");
  const voice = element("span", "rein-voice");
  voice.setAttribute("data-role", "voice");
  voice.setAttribute("aria-live", "polite");
  bar.append(said, voice, button("Stop", "stop"), button("Copy as Markdown", "copy"), button("Expand all", "expand"));
  const panes = element("div", "rein-panes");
  const many = labels.length > 1;
  panes.style.gridTemplateColumns = `repeat(${Math.max(1, labels.length)}, minmax(${many ? "18em" : "0"}, 1fr))`;
  if (many || labels[0]) {
    labels.forEach((label, column) => {
      const head = element("div", "rein-panehead");
      const stop = button("Stop", "stopcolumn");
      stop.dataset.column = String(column);
      stop.setAttribute("aria-label", "Stop " + label);
      head.append(element("span", "", label));
      if (many) head.append(stop);
      panes.append(head);
    });
  }
  (rows.length ? rows : [""]).forEach((row) => {
    if (row) panes.append(element("div", "rein-rowhead", row));
    (labels.length ? labels : [""]).forEach(() => {
      const pane = element("div", "rein-pane");
      const foot = element("div", "rein-foot");
      foot.hidden = true;
      pane.append(element("div", "rein-blocks"), foot);
      panes.append(pane);
    });
  });
  root.append(bar, panes);
  return root;
}

/** One drawn copy of the transcript. */
class Sheet {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    /** @type {Map<string, HTMLElement>} */
    this.blocks = new Map();
    /** @type {HTMLElement | null} */
    this.chosen = null;
    this.index();
  }

  index() {
    this.blocks.clear();
    this.root.querySelectorAll("[data-id]").forEach((node) => this.blocks.set(/** @type {HTMLElement} */ (node).dataset.id || "", /** @type {HTMLElement} */ (node)));
  }

  /**
   * @param {number} number
   * @returns {HTMLElement}
   */
  pane(number) {
    return /** @type {HTMLElement} */ (this.root.querySelectorAll(".rein-pane")[number]);
  }

  /**
   * @param {HTMLElement | null | undefined} block
   * @param {string} name
   * @returns {HTMLElement | null}
   */
  slot(block, name) {
    return block ? block.querySelector(`[data-slot="${name}"]`) : null;
  }

  /** @param {string} text */
  append(text) {
    const tail = this.slot(this.chosen, "tail");
    if (!tail) return;
    if (tail.lastChild) /** @type {Text} */ (tail.lastChild).appendData(text);
    else tail.append(text);
  }

  /**
   * A block's markup from literals and references into the tail; null when a reference is not what it must be.
   * @param {string} text
   * @param {any[]} pieces
   * @returns {string | null}
   */
  static join(text, pieces) {
    let html = "";
    let at = 0;
    for (let i = 0; i < pieces.length; i += 3) {
      html += pieces[i].replace(/[\x80-\x9f]/g, (/** @type {string} */ code) => TAGS[code.charCodeAt(0) - 128]);
      if (i + 2 < pieces.length) {
        const copy = text.substr(at + pieces[i + 1], pieces[i + 2]);
        if (copy.length !== pieces[i + 2] || UNSAFE.test(copy)) return null;
        html += copy;
        at += pieces[i + 1] + pieces[i + 2];
      }
    }
    return html;
  }

  /**
   * @param {any[]} op
   * @returns {boolean} false when the sheet is out of step
   */
  apply(op) {
    const block = typeof op[1] === "string" ? this.blocks.get(op[1]) : null;
    switch (op[0]) {
      case "o":
        this.chosen = block || null;
        break;
      case "s": {
        const tail = this.slot(this.chosen, "tail");
        if (tail) tail.textContent = op[1];
        break;
      }
      case "m": {
        const tail = this.slot(this.chosen, "tail");
        if (tail) tail.className = "rein-tail rein-" + (op[1] === "code" ? "code" : "text");
        break;
      }
      case "b": {
        const tail = this.slot(this.chosen, "tail");
        const body = this.slot(this.chosen, "md");
        if (!tail || !body) return false;
        const html = Sheet.join(tail.textContent || "", op.slice(1));
        if (html === null) return false;
        body.insertAdjacentHTML("beforeend", html);
        tail.textContent = "";
        break;
      }
      case "a": {
        const host = this.pane(op[1]).querySelector(".rein-blocks");
        if (host) host.insertAdjacentHTML("beforeend", op[3]);
        if (host && host.lastElementChild) this.blocks.set(op[2], /** @type {HTMLElement} */ (host.lastElementChild));
        break;
      }
      case "r": {
        const old = this.blocks.get(op[2]);
        if (!old) return false;
        const holder = document.createElement("div");
        holder.innerHTML = op[3];
        const fresh = /** @type {HTMLElement} */ (holder.firstElementChild);
        old.replaceWith(fresh);
        this.blocks.set(op[2], fresh);
        if (this.chosen === old) this.chosen = fresh;
        break;
      }
      case "u": {
        const slot = this.slot(block, op[2]);
        if (slot) slot.innerHTML = op[3];
        break;
      }
      case "d": {
        const fold = block && block.querySelector("details");
        if (fold && !this.root.dataset.expanded) fold.open = Boolean(op[2]);
        break;
      }
      case "f": {
        const foot = /** @type {HTMLElement} */ (this.pane(op[1]).querySelector(".rein-foot"));
        foot.innerHTML = op[2];
        foot.hidden = !op[2];
        break;
      }
      case "g":
        this.status(op[1], op[2], op[3]);
        break;
      case "S":
        op.slice(1).forEach((pane, number) => {
          /** @type {HTMLElement} */ (this.pane(number).querySelector(".rein-blocks")).innerHTML = pane[0];
          this.apply(["f", number, pane[1]]);
          this.status(number, pane[2], pane[3]);
        });
        this.chosen = null;
        this.index();
        break;
    }
    return true;
  }

  /**
   * @param {number} pane
   * @param {string} status
   * @param {string} words
   */
  status(pane, status, words) {
    this.pane(pane).dataset.status = status;
    const all = [...this.root.querySelectorAll(".rein-pane")].map((node) => /** @type {HTMLElement} */ (node).dataset.status || "waiting");
    const busy = all.some((one) => one === "waiting" || one === "running");
    this.root.dataset.status = busy ? "running" : status;
    const said = this.root.querySelector('[data-role="words"]');
    const stops = this.root.querySelectorAll('[data-act="stopcolumn"]');
    stops.forEach((stop, column) => {
      /** @type {HTMLElement} */ (stop).hidden = !all.some((one, at) => at % stops.length === column && (one === "waiting" || one === "running"));
    });
    if (said) said.textContent = all.length > 1 ? `${all.filter((one) => one !== "waiting" && one !== "running").length} of ${all.length} done` : words;
  }

  /** Gives code blocks that came in their copy button. */
  dress() {
    this.root.querySelectorAll("pre.rein-code:not([data-dressed])").forEach((pre) => {
      /** @type {HTMLElement} */ (pre).dataset.dressed = "1";
      const frame = element("div", "rein-codeframe");
      pre.replaceWith(frame);
      frame.append(pre, button("Copy", "code"));
    });
  }
}

/** All that a page knows of one run. */
class Store {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.number = -1;
    this.asked = 0;
    this.own = new Sheet(skeleton(model.get("labels") || [], model.get("rows") || []));
    /** @type {Set<Sheet>} */
    this.views = new Set();
    this.lastSaid = 0;
    this.saying = "";
    /** @type {any} */
    this.timer = 0;
    /** @type {((text: string) => void) | null} */
    this.copied = null;
    /** @type {Sheet | null} */
    this.spare = null;
    this.receive = (/** @type {any} */ content) => this.message(content);
    model.on("msg:custom", this.receive);
    this.ask();
  }

  ask() {
    this.asked = Date.now();
    this.model.send({ k: "hello" });
  }

  /** @param {any} content */
  message(content) {
    if (!Array.isArray(content)) {
      if (content && content.k === "markdown" && this.copied) this.copied(String(content.text));
      return;
    }
    const [number, ...ops] = /** @type {Message} */ (content);
    const whole = ops.length && ops[0][0] === "S";
    if (number <= this.number) return;
    if (!whole && (this.number < 0 || number !== this.number + 1)) {
      if (Date.now() - this.asked > 1000) this.ask();
      return;
    }
    if (whole && this.number >= 0 && number === this.number + 1 && !this.asked) {
      // Meant for another page; but from here on Python names the block anew.
      this.number = number;
      for (const sheet of [this.own, ...this.views]) sheet.chosen = null;
      return;
    }
    this.number = number;
    if (whole) this.asked = 0;
    const sheets = [this.own, ...this.views];
    for (const sheet of sheets) {
      const stay = follow(sheet.root);
      for (const op of ops) {
        if (typeof op === "string") sheet.append(op);
        else if (!sheet.apply(op)) {
          this.number = -1;
          this.ask();
          return;
        }
      }
      if (sheet !== this.own && ops.some((op) => typeof op !== "string" && "abrSu".includes(op[0]))) sheet.dress();
      stay();
    }
    this.announce(ops);
  }

  /**
   * Tells a screen reader what is new, at most once a second.
   * @param {any[]} ops
   */
  announce(ops) {
    for (const op of ops) {
      if (op[0] === "g" && typeof op !== "string") this.saying = op[3];
      else if (op[0] === "b" && typeof op !== "string" && this.own.chosen && this.own.chosen.dataset.kind === "text") {
        const body = this.own.slot(this.own.chosen, "md");
        const last = body && body.lastElementChild;
        if (last) this.saying = (this.saying + " " + (last.textContent || "")).trim().slice(0, 400);
      }
    }
    if (!this.saying || this.timer) return;
    this.timer = setTimeout(() => {
      for (const sheet of this.views) {
        const voice = sheet.root.querySelector('[data-role="voice"]');
        if (voice) voice.textContent = this.saying;
      }
      this.saying = "";
      this.timer = 0;
    }, ANNOUNCE_MS);
  }

  /** @returns {Sheet} */
  open() {
    const sheet = new Sheet(/** @type {HTMLElement} */ (this.own.root.cloneNode(true)));
    if (this.own.chosen) sheet.chosen = sheet.blocks.get(this.own.chosen.dataset.id || "") || null;
    sheet.dress();
    this.views.add(sheet);
    return sheet;
  }

  /**
   * A view that goes may come back at once: a front end draws an output anew when it is updated. Its sheet is kept for the next view, so that
   * nothing flickers and what the reader unfolded stays so.
   * @param {Sheet} sheet
   */
  release(sheet) {
    if (this.spare) this.views.delete(this.spare);
    this.spare = sheet;
    setTimeout(() => {
      if (this.spare !== sheet) return;
      this.spare = null;
      this.views.delete(sheet);
    }, SPARE_MS);
  }

  close() {
    clearTimeout(this.timer);
    this.model.off("msg:custom", this.receive);
  }
}

/**
 * What scrolls up and down around a node. Front ends wrap outputs in boxes that could scroll but never do, and which one does may change.
 * @param {HTMLElement} node
 * @returns {HTMLElement | null}
 */
function scrollerOf(node) {
  let parent = node.parentElement;
  while (parent && !(parent.scrollHeight > parent.clientHeight + 1 && /(auto|scroll)/.test(getComputedStyle(parent).overflowY))) parent = parent.parentElement;
  return parent;
}

/**
 * Keeps the bottom of the transcript in sight, if it was in sight. Call before a change; call the result after it.
 * @param {HTMLElement} root
 * @returns {() => void}
 */
function follow(root) {
  const scroller = root.isConnected ? scrollerOf(root) : null;
  if (!scroller) return () => {};
  const edge = scroller.getBoundingClientRect().bottom;
  const before = root.getBoundingClientRect().bottom;
  if (before > edge + NEAR_BOTTOM_PX || before < scroller.getBoundingClientRect().top) return () => {};
  return () => {
    const over = root.getBoundingClientRect().bottom - edge;
    if (over > 0) scroller.scrollTop += over + 8;
  };
}

/** @param {string} text */
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/**
 * @param {HTMLElement} node
 * @param {string} text
 */
function flash(node, text) {
  const before = node.textContent || "";
  node.textContent = text;
  setTimeout(() => { node.textContent = before; }, 1200);
}

/**
 * What a click on one of our own buttons does. Cleaned foreign HTML cannot hold a button.
 * @param {Store} store
 * @param {Sheet} sheet
 * @param {Event} event
 */
function clicked(store, sheet, event) {
  const node = /** @type {HTMLButtonElement | null} */ (/** @type {HTMLElement} */ (event.target).closest("button[data-act]"));
  if (!node || !sheet.root.contains(node)) return;
  const act = node.dataset.act;
  if (act === "stop") {
    node.disabled = true;
    node.textContent = "Stopping…";
    store.model.send({ k: "stop" });
  } else if (act === "stopcolumn") {
    node.disabled = true;
    store.model.send({ k: "stop_column", column: Number(node.dataset.column) });
  } else if (act === "expand") {
    const open = !sheet.root.dataset.expanded;
    if (open) sheet.root.dataset.expanded = "1";
    else delete sheet.root.dataset.expanded;
    sheet.root.querySelectorAll("details").forEach((fold) => { fold.open = open; });
    node.textContent = open ? "Fold all" : "Expand all";
  } else if (act === "copy") {
    const plain = setTimeout(() => store.copied && store.copied(/** @type {HTMLElement} */ (sheet.root.querySelector(".rein-panes")).innerText), 700);
    store.copied = (text) => {
      clearTimeout(plain);
      store.copied = null;
      toClipboard(text).then(() => flash(node, "Copied"));
    };
    store.model.send({ k: "markdown" });
  } else if (act === "code") {
    const pre = node.parentElement && node.parentElement.querySelector("pre");
    if (pre) toClipboard(pre.textContent || "").then(() => flash(node, "Copied"));
  } else {
    node.parentElement?.querySelectorAll("button").forEach((one) => { one.disabled = true; });
    store.model.send({ k: "decide", pane: [...sheet.root.querySelectorAll(".rein-pane")].indexOf(/** @type {HTMLElement} */ (node.closest(".rein-pane"))), call: node.dataset.call, decision: act });
  }
}

/**
 * anywidget calls this once per model; all views of the model share one store.
 * @returns {{ initialize(args: { model: Model }): () => void, render(args: { model: Model, el: HTMLElement }): () => void }}
 */
export default () => {
  /** @type {Store | null} */
  let store = null;
  return {
    initialize({ model }) {
      const mine = (store = new Store(model));
      return () => mine.close();
    },
    render({ model, el }) {
      const here = store || (store = new Store(model));
      const sheet = here.spare || here.open();
      here.spare = null;
      const handler = (/** @type {Event} */ event) => clicked(here, sheet, event);
      sheet.root.addEventListener("click", handler);
      el.append(sheet.root);
      return () => {
        sheet.root.removeEventListener("click", handler);
        here.release(sheet);
      };
    },
  };
};
