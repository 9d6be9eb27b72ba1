/** The report inside the page: JSON, raw deflate, base64 in a script element that is not code. */
import { decodeReport, type Report } from "./model.ts";
import { fromBase64, toBase64 } from "./packed.ts";

export async function readEmbedded(encoded: string): Promise<Report> {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("the browser is too old (Chrome 103, Firefox 113 or Safari 16.4 is needed)");
  }
  const stream = new Blob([fromBase64(encoded.trim())]).stream();
  const inflated = stream.pipeThrough(new DecompressionStream("deflate-raw"));
  return decodeReport(await new Response(inflated).json());
}

/** The inverse on JSON text, for tests: the program itself embeds in Rust. */
export async function embed(json: string): Promise<string> {
  const deflated = new Blob([json]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  return toBase64(new Uint8Array(await new Response(deflated).arrayBuffer()));
}
