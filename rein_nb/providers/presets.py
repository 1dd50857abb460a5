"""The known providers, as one table. A vendor here is data: nothing in this file does anything."""

from __future__ import annotations

from dataclasses import replace

from rein_nb.dialects.base import Quirks
from rein_nb.providers.spec import ProviderSpec

_OPENAI = Quirks(
    developer_role=True, max_tokens_field="max_completion_tokens", strict_tools=True, store=True, mid_system=True
)
_DEEPSEEK = Quirks(
    # https://api-docs.deepseek.com/guides/thinking_mode: reasoning_content goes back within a turn that called tools.
    reasoning_field="reasoning_content",
    reasoning_replay="tool_turns",
    parallel_tool_calls=False,
    named_tool_choice=True,
    mid_system=True,
)
_THINK_TAGS = Quirks(think_tags=True)


def _chat(name: str, base_url: str, *key_env: str, docs: str, **more: object) -> ProviderSpec:
    return replace(
        ProviderSpec(name=name, dialect="openai-chat", sdk="openai", base_url=base_url, key_env=key_env, docs=docs),
        **more,  # type: ignore[arg-type]
    )


PRESETS: tuple[ProviderSpec, ...] = (
    ProviderSpec(
        name="openai",
        dialect="openai-responses",
        sdk="openai",
        base_url="https://api.openai.com/v1",
        key_env=("OPENAI_API_KEY",),
        base_url_env=("OPENAI_BASE_URL",),
        quirks=replace(_OPENAI, reasoning_summary="auto"),
        price_id="openai",
        docs="https://platform.openai.com/docs/api-reference/responses",
    ),
    ProviderSpec(
        name="openai-chat",
        dialect="openai-chat",
        sdk="openai",
        base_url="https://api.openai.com/v1",
        key_env=("OPENAI_API_KEY",),
        base_url_env=("OPENAI_BASE_URL",),
        quirks=_OPENAI,
        price_id="openai",
        docs="https://platform.openai.com/docs/api-reference/chat",
    ),
    ProviderSpec(
        name="anthropic",
        dialect="anthropic",
        sdk="anthropic",
        auth="x-api-key",
        base_url="https://api.anthropic.com",
        key_env=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        base_url_env=("ANTHROPIC_BASE_URL",),
        price_id="anthropic",
        docs="https://docs.claude.com/en/api/messages",
    ),
    ProviderSpec(
        name="google",
        dialect="google",
        auth="x-goog-api-key",
        base_url="https://generativelanguage.googleapis.com",
        key_env=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_url_env=("GOOGLE_GEMINI_BASE_URL",),
        price_id="google",
        docs="https://ai.google.dev/api/generate-content",
    ),
    ProviderSpec(
        name="google-vertex",
        dialect="google",
        auth="bearer",
        base_url=(
            "https://{GOOGLE_CLOUD_LOCATION}-aiplatform.googleapis.com/v1/projects/{GOOGLE_CLOUD_PROJECT}"
            "/locations/{GOOGLE_CLOUD_LOCATION}/publishers/google"
        ),
        key_env=("GOOGLE_OAUTH_ACCESS_TOKEN", "GOOGLE_ACCESS_TOKEN"),
        quirks=Quirks(path="/models/{model}"),
        price_id="google",
        docs="https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference",
    ),
    ProviderSpec(
        name="antigravity",
        dialect="google-code-assist",
        auth="bearer",
        base_url="https://cloudcode-pa.googleapis.com",
        key_env=("ANTIGRAVITY_ACCESS_TOKEN",),
        opt_in=(
            "it is Google's internal Code Assist endpoint, without a public contract; "
            "use it only with an account and a token that you may use for this"
        ),
        docs="https://cloud.google.com/gemini/docs/codeassist/overview",
    ),
    ProviderSpec(name="local", dialect="openai-chat", sdk="openai", endpoint="local", needs_key=False),
    ProviderSpec(name="local-responses", dialect="openai-responses", sdk="openai", endpoint="local", needs_key=False),
    ProviderSpec(
        name="local-messages",
        dialect="anthropic",
        sdk="anthropic",
        auth="x-api-key",
        endpoint="local",
        needs_key=False,
    ),
    _chat(
        "deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY",
        docs="https://api-docs.deepseek.com", quirks=_DEEPSEEK, price_id="deepseek",
        base_url_env=("DEEPSEEK_BASE_URL",),
    ),
    # -- servers that people run themselves -------------------------------------------------------
    ProviderSpec(
        name="ollama",
        dialect="ollama",
        base_url="http://localhost:11434",
        key_env=("OLLAMA_API_KEY",),
        base_url_env=("OLLAMA_BASE_URL", "OLLAMA_HOST"),
        quirks=Quirks(framing="ndjson"),
        needs_key=False,
        docs="https://github.com/ollama/ollama/blob/main/docs/api.md",
    ),
    _chat(
        "ollama-chat", "http://localhost:11434/v1", "OLLAMA_API_KEY",
        docs="https://github.com/ollama/ollama/blob/main/docs/openai.md", needs_key=False, quirks=Quirks(reasoning_field="reasoning"),
    ),
    _chat(
        "vllm", "http://localhost:8000/v1", "VLLM_API_KEY",
        docs="https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
        base_url_env=("VLLM_BASE_URL",), needs_key=False, quirks=Quirks(think_tags=True, reasoning_field="reasoning", top_k_field="top_k"),
    ),
    _chat(
        "llamacpp", "http://localhost:8080/v1", "LLAMA_API_KEY",
        docs="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
        base_url_env=("LLAMACPP_BASE_URL",), needs_key=False,
        quirks=Quirks(
            think_tags=True, reasoning_field="reasoning_content", reasoning_replay="tool_turns", top_k_field="top_k"
        ),
    ),
    _chat(
        "lmstudio", "http://localhost:1234/v1", "LMSTUDIO_API_KEY",
        docs="https://lmstudio.ai/docs/developer/openai-compat",
        base_url_env=("LMSTUDIO_BASE_URL",), needs_key=False, quirks=Quirks(think_tags=True, top_k_field="top_k"),
    ),
    _chat(
        "litellm-proxy", "http://localhost:4000/v1", "LITELLM_API_KEY", "LITELLM_PROXY_API_KEY",
        docs="https://docs.litellm.ai/docs/simple_proxy",
        base_url_env=("LITELLM_PROXY_API_BASE",), needs_key=False, quirks=Quirks(reasoning_field="reasoning_content"),
    ),
    # -- clouds -----------------------------------------------------------------------------------
    _chat(
        "azure", "{AZURE_OPENAI_ENDPOINT}/openai/v1", "AZURE_OPENAI_API_KEY",
        docs="https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle", quirks=_OPENAI, price_id="azure",
    ),
    ProviderSpec(
        name="azure-responses",
        dialect="openai-responses",
        sdk="openai",
        base_url="{AZURE_OPENAI_ENDPOINT}/openai/v1",
        key_env=("AZURE_OPENAI_API_KEY",),
        quirks=_OPENAI,
        price_id="azure",
        docs="https://learn.microsoft.com/azure/ai-foundry/openai/how-to/responses",
    ),
    _chat(
        "bedrock-mantle", "https://bedrock-mantle.{AWS_REGION}.api.aws/v1", "AWS_BEARER_TOKEN_BEDROCK",
        docs="https://docs.aws.amazon.com/bedrock/latest/userguide/bedrock-mantle.html", price_id="aws",
    ),
    _chat(
        "cloudflare", "https://api.cloudflare.com/client/v4/accounts/{CLOUDFLARE_ACCOUNT_ID}/ai/v1",
        "CLOUDFLARE_API_TOKEN", "CLOUDFLARE_API_KEY",
        docs="https://developers.cloudflare.com/workers-ai/configuration/open-ai-compatibility/",
    ),
    _chat(
        "databricks", "{DATABRICKS_HOST}/serving-endpoints", "DATABRICKS_TOKEN",
        docs="https://docs.databricks.com/aws/en/machine-learning/model-serving/score-foundation-models",
    ),
    _chat(
        "github-models", "https://models.github.ai/inference", "GITHUB_MODELS_TOKEN", "GITHUB_TOKEN",
        docs="https://docs.github.com/en/rest/models/inference",
    ),
    _chat("nvidia", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY", docs="https://docs.api.nvidia.com/nim/reference/llm-apis"),
    # -- gateways ---------------------------------------------------------------------------------
    _chat(
        "openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY",
        docs="https://openrouter.ai/docs/api-reference/overview", price_id="openrouter",
        quirks=Quirks(
            reasoning_field="reasoning_details", reasoning_replay="always", strict_tools=True,
            top_k_field="top_k", effort_field="reasoning.effort",
        ),
    ),
    _chat(
        "vercel", "https://ai-gateway.vercel.sh/v1", "AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN",
        docs="https://vercel.com/docs/ai-gateway/openai-compatible-api",
        quirks=Quirks(reasoning_field="reasoning_details", reasoning_replay="always"),
    ),
    _chat(
        "huggingface", "https://router.huggingface.co/v1", "HF_TOKEN", "HUGGINGFACE_API_KEY",
        docs="https://huggingface.co/docs/inference-providers/index", quirks=_THINK_TAGS,
    ),
    # -- vendors and hosts ------------------------------------------------------------------------
    _chat(
        "groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY",
        docs="https://console.groq.com/docs/openai", price_id="groq",
        quirks=Quirks(max_tokens_field="max_completion_tokens", reasoning_field="reasoning"),
    ),
    _chat(
        "mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY",
        docs="https://docs.mistral.ai/api/", price_id="mistral",
        # Usage comes with the last chunk by itself; stream_options is refused as an unknown field.
        quirks=Quirks(stream_usage=False, seed_field="random_seed"),
    ),
    _chat(
        "xai", "https://api.x.ai/v1", "XAI_API_KEY", docs="https://docs.x.ai/docs/api-reference", price_id="x-ai",
        quirks=Quirks(reasoning_field="reasoning_content"),
    ),
    _chat("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", docs="https://docs.together.ai/docs/openai-api-compatibility",
          price_id="together", quirks=Quirks(think_tags=True, top_k_field="top_k")),
    _chat("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY", docs="https://docs.fireworks.ai/tools-sdks/openai-compatibility",
          price_id="fireworks", quirks=Quirks(think_tags=True, top_k_field="top_k")),
    _chat("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", docs="https://inference-docs.cerebras.ai/resources/openai",
          price_id="cerebras", quirks=Quirks(max_tokens_field="max_completion_tokens", reasoning_field="reasoning", think_tags=True)),
    _chat("perplexity", "https://api.perplexity.ai", "PERPLEXITY_API_KEY", "PPLX_API_KEY", docs="https://docs.perplexity.ai/api-reference",
          price_id="perplexity", quirks=Quirks(think_tags=True, stream_usage=False)),
    _chat("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", docs="https://platform.moonshot.ai/docs/api/chat",
          price_id="moonshotai", quirks=Quirks(reasoning_field="reasoning_content", reasoning_replay="tool_turns")),
    _chat("alibaba", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY", "ALIBABA_API_KEY",
          docs="https://www.alibabacloud.com/help/en/model-studio/compatibility-of-openai-with-dashscope",
          base_url_env=("DASHSCOPE_BASE_URL",), quirks=Quirks(reasoning_field="reasoning_content")),
    _chat("dashscope", "https://dashscope.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY",
          docs="https://help.aliyun.com/zh/model-studio/compatibility-of-openai-with-dashscope",
          base_url_env=("DASHSCOPE_BASE_URL",), quirks=Quirks(reasoning_field="reasoning_content")),
    _chat("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY", "ZHIPUAI_API_KEY", docs="https://docs.z.ai/api-reference/llm/chat-completion",
          price_id="zai", quirks=Quirks(reasoning_field="reasoning_content", reasoning_replay="tool_turns", named_tool_choice=False)),
    _chat("minimax", "https://api.minimax.io/v1", "MINIMAX_API_KEY", docs="https://platform.minimax.io/docs/api-reference/text-openai-api",
          quirks=_THINK_TAGS),
    _chat("volcengine", "https://ark.cn-beijing.volces.com/api/v3", "ARK_API_KEY", docs="https://www.volcengine.com/docs/82379",
          quirks=Quirks(reasoning_field="reasoning_content")),
    _chat("siliconflow", "https://api.siliconflow.cn/v1", "SILICONFLOW_API_KEY", docs="https://docs.siliconflow.cn/en/api-reference/chat-completions/chat-completions",
          quirks=Quirks(reasoning_field="reasoning_content")),
    _chat("cohere", "https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY", "CO_API_KEY", docs="https://docs.cohere.com/docs/compatibility-api",
          price_id="cohere", quirks=Quirks(stream_usage=False)),
    _chat("sambanova", "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY", docs="https://docs.sambanova.ai/docs/en/features/openai-compatibility",
          quirks=_THINK_TAGS),
    _chat("deepinfra", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY", "DEEPINFRA_TOKEN", docs="https://deepinfra.com/docs/openai_api",
          quirks=Quirks(think_tags=True, top_k_field="top_k")),
    _chat("novita", "https://api.novita.ai/openai/v1", "NOVITA_API_KEY", docs="https://novita.ai/docs/guides/llm-api", price_id="novita", quirks=_THINK_TAGS),
    _chat("nebius", "https://api.tokenfactory.nebius.com/v1", "NEBIUS_API_KEY", docs="https://docs.tokenfactory.nebius.com", quirks=_THINK_TAGS),
    _chat("hyperbolic", "https://api.hyperbolic.xyz/v1", "HYPERBOLIC_API_KEY", docs="https://docs.hyperbolic.xyz", quirks=_THINK_TAGS),
    _chat("baseten", "https://inference.baseten.co/v1", "BASETEN_API_KEY", docs="https://docs.baseten.co/inference/model-apis/overview"),
    _chat("scaleway", "https://api.scaleway.ai/v1", "SCW_SECRET_KEY", docs="https://www.scaleway.com/en/docs/generative-apis/"),
    _chat("ovhcloud", "https://oai.endpoints.kepler.ai.cloud.ovh.net/v1", "OVHCLOUD_API_KEY", docs="https://help.ovhcloud.com/csm/en-public-cloud-ai-endpoints-getting-started"),
    _chat("venice", "https://api.venice.ai/api/v1", "VENICE_API_KEY", docs="https://docs.venice.ai/api-reference/api-spec",
          quirks=Quirks(reasoning_field="reasoning_content")),
    ProviderSpec(
        name="openai-compatible",
        dialect="openai-chat",
        sdk="openai",
        key_env=("REIN_NB_API_KEY",),
        base_url_env=("REIN_NB_BASE_URL",),
        quirks=Quirks(think_tags=True),
        needs_key=False,
        docs="https://platform.openai.com/docs/api-reference/chat",
    ),
    ProviderSpec(
        name="anthropic-compatible",
        dialect="anthropic",
        sdk="anthropic",
        auth="x-api-key",
        key_env=("REIN_NB_API_KEY",),
        base_url_env=("REIN_NB_BASE_URL",),
        needs_key=False,
        docs="https://docs.claude.com/en/api/messages",
    ),
)  # fmt: skip
