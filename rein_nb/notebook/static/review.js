// @ts-check
/**
 * The browser's end of a review: two answers, buttons and keys. Python draws and cleans the answers; this file puts them in their place and
 * tells which button or key was pressed, with the number of the pair it was meant for and the seconds since that pair was drawn.
 */

/** @typedef {{ send(content: any): void, on(name: string, fn: (...args: any[]) => void): void, off(name: string, fn?: (...args: any[]) => void): void }} Model */

/** What can be done: word, name on the button, keys. */
const ACTS = /** @type {const} */ ([
  ["left", "Left is better", ["ArrowLeft", "1"], "←"],
  ["tie", "Tie", ["ArrowUp", "="], "↑"],
  ["both_bad", "Both are bad", ["ArrowDown", "-"], "↓"],
  ["right", "Right is better", ["ArrowRight", "2"], "→"],
  ["skip", "Skip", ["s"], "S"],
  ["undo", "Undo", ["u", "Backspace"], "U"],
  ["finish", "Finish", ["f"], "F"],
]);

/**
 * @param {string} tag
 * @param {string} className
 * @param {string} [text]
 * @returns {HTMLElement}
 */
function element(tag, className, text) {
  const node = document.createElement(tag);
  node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

/** @param {{ model: Model, el: HTMLElement }} context */
function render({ model, el }) {
  const root = element("div", "rein-root rein-live rein-review jp-RenderedHTMLCommon mathjax_ignore tex2jax_ignore");
  root.tabIndex = 0;
  root.setAttribute("role", "region");
  root.setAttribute("aria-label", "Review: which answer is better");
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  const bar = element("div", "rein-reviewbar");
  const said = element("span", "rein-reviewsaid", "Loading");
  said.setAttribute("aria-live", "polite");
  const meter = element("progress", "rein-reviewmeter");
  meter.setAttribute("aria-hidden", "true");
  bar.append(said, meter);
  const prompt = element("div", "rein-user");
  const sides = element("div", "rein-sides");
  const panes = ["Left", "Right"].map((name) => {
    const side = element("section", "rein-side");
    side.setAttribute("aria-label", name + " answer");
    const body = element("div", "rein-sidebody");
    side.append(element("div", "rein-sidehead", name), body);
    sides.append(side);
    return body;
  });
  const row = element("div", "rein-acts");
  ACTS.forEach(([act, name, , key]) => {
    const node = element("button", "rein-button rein-act-" + act);
    node.setAttribute("type", "button");
    node.dataset.act = act;
    const hint = element("kbd", "rein-key", key);
    hint.setAttribute("aria-hidden", "true");
    node.append(element("span", "", name), hint);
    row.append(node);
  });
  root.append(bar, prompt, sides, row);
  el.append(root);

  let number = -1;
  let since = 0;
  /** @param {string} act */
  const perform = (act) => {
    if (act === "undo" || act === "finish") {
      model.send({ k: act });
    } else if (number >= 0) {
      model.send({ k: "vote", vote: act, number, seconds: (performance.now() - since) / 1000 });
      number = -1;  // until the next pair is here
    }
  };
  /** @param {any} content */
  const receive = (content) => {
    if (!content || content.k !== "pair") return;
    if (content.number !== number) since = performance.now();
    number = content.number;
    said.textContent = `Pair ${content.judged + 1} of ${content.total}`;
    meter.setAttribute("max", String(content.total));
    meter.setAttribute("value", String(content.judged));
    prompt.textContent = content.prompt;
    // Both were cleaned by Python: see rein_nb/notebook/sanitize.py.
    panes[0].innerHTML = content.left;
    panes[1].innerHTML = content.right;
    panes.forEach((pane) => { pane.scrollTop = 0; });
    const undo = /** @type {HTMLButtonElement} */ (row.querySelector("[data-act=undo]"));
    undo.disabled = content.judged === 0;
  };
  /** @param {MouseEvent} event */
  const click = (event) => {
    const node = /** @type {HTMLElement} */ (event.target).closest("[data-act]");
    if (node instanceof HTMLElement && row.contains(node)) {
      perform(node.dataset.act || "");
      root.focus({ preventScroll: true });
    }
  };
  /** @param {KeyboardEvent} event */
  const press = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.repeat) return;
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const act = ACTS.find(([, , keys]) => /** @type {readonly string[]} */ (keys).includes(name));
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    perform(act[0]);
  };
  root.addEventListener("click", click);
  root.addEventListener("keydown", press);
  model.on("msg:custom", receive);
  model.send({ k: "hello" });
  requestAnimationFrame(() => root.focus({ preventScroll: true }));
  return () => model.off("msg:custom", receive);
}

export default { render };
