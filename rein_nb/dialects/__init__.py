"""Sans-IO codecs, one file per wire dialect. The only code that knows a wire field.

Lives here: encoding a request, decoding a stream and a whole response, decoding an error body, framing (SSE, NDJSON, JSON array),
schema transforms, and the hand-off rules.

May import: `ir`, `stream`. May not know: a network, an SDK, a credential, an event loop.
"""
