/** The model inside the page: JSON, raw deflate, base64, in a script element that is not code. */
import { deflateSync, inflateSync, strFromU8, strToU8 } from "fflate";
import { SCHEMA } from "./model.ts";
import { fromBase64, toBase64 } from "./packed.ts";

/**
 * Reads the model. Its types match, because one program wrote both the model and this script. It
 * waits for nothing, so a page that is printed as soon as it is loaded is complete.
 */
export function readEmbedded(encoded: string): unknown {
  const model = JSON.parse(strFromU8(inflateSync(fromBase64(encoded.trim()))));
  if (model.schema !== SCHEMA) {
    throw new Error(`it has version ${model.schema} of the model, this script reads version ${SCHEMA}`);
  }
  return model;
}

/** The inverse, for tests. The program embeds models in Rust. */
export function embed(json: string): string {
  return toBase64(deflateSync(strToU8(json)));
}
