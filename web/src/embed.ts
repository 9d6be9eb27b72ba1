/** The model inside the page: JSON, raw deflate, base64, in a script element that is not code. */
import { SCHEMA } from "./model.ts";
import { fromBase64, toBase64 } from "./packed.ts";

/** Reads the model. Its types match, because one program wrote both the model and this script. */
export async function readEmbedded(encoded: string): Promise<unknown> {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("the browser is too old; Chrome 103, Firefox 113 or Safari 16.4 is needed");
  }
  const stream = new Blob([fromBase64(encoded.trim())]).stream();
  const inflated = stream.pipeThrough(new DecompressionStream("deflate-raw"));
  const model = await new Response(inflated).json();
  if (model.schema !== SCHEMA) {
    throw new Error(`it has version ${model.schema} of the model, this script reads version ${SCHEMA}`);
  }
  return model;
}

/** The inverse on JSON text, for tests: the program embeds in Rust. */
export async function embed(json: string): Promise<string> {
  const deflated = new Blob([json]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  return toBase64(new Uint8Array(await new Response(deflated).arrayBuffer()));
}
