// A WebSocket server that echoes text of up to 125 bytes (RFC 6455), and an HTTP/2 server without TLS
// that sends ten numbers, one every 10 ms. Prints both ports as JSON. With `client URL N`: sends N
// messages to the former and prints the round trips in milliseconds.

import { createHash, randomBytes } from "node:crypto";
import { createServer, request } from "node:http";
import { createServer as createServer2 } from "node:http2";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

function serve() {
  const sockets = createServer();
  sockets.on("upgrade", (head, socket) => {
    const accept = createHash("sha1").update(head.headers["sec-websocket-key"] + GUID).digest("base64");
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
        `Sec-WebSocket-Accept: ${accept}\r\n\r\n`,
    );
    socket.on("error", () => {});
    socket.on("data", (frame) => {
      // One masked text frame at a time: the client waits for the answer.
      const length = frame[1] & 127;
      const mask = frame.subarray(2, 6);
      const text = Buffer.from(frame.subarray(6, 6 + length).map((byte, at) => byte ^ mask[at % 4]));
      socket.write(Buffer.concat([Buffer.from([0x81, length]), text]));
    });
  });
  const streams = createServer2();
  streams.on("stream", (stream) => {
    stream.respond({ ":status": 200 });
    let sent = 0;
    const timer = setInterval(() => {
      sent += 1;
      stream.write(`${sent}\n`);
      if (sent === 10) {
        clearInterval(timer);
        stream.end();
      }
    }, 10);
  });
  sockets.listen(0, "127.0.0.1", () => {
    streams.listen(0, "127.0.0.1", () => {
      console.log(JSON.stringify({ websocket: sockets.address().port, http2: streams.address().port }));
    });
  });
}

function client(url, count) {
  const opening = request(url, {
    headers: {
      Connection: "Upgrade",
      Upgrade: "websocket",
      "Sec-WebSocket-Version": "13",
      "Sec-WebSocket-Key": randomBytes(16).toString("base64"),
    },
  });
  opening.on("upgrade", (_answer, socket) => {
    const times = [];
    let start = 0;
    const send = () => {
      const text = Buffer.from("hello");
      start = performance.now();
      // An all-zero mask does not change the text.
      socket.write(Buffer.concat([Buffer.from([0x81, 0x80 | text.length, 0, 0, 0, 0]), text]));
    };
    socket.on("data", (frame) => {
      if (frame.subarray(2).toString() !== "hello") {
        throw new Error(`not an echo: ${frame}`);
      }
      times.push(performance.now() - start);
      if (times.length < count) {
        send();
      } else {
        console.log(JSON.stringify(times));
        socket.destroy();
      }
    });
    send();
  });
  opening.end();
}

if (process.argv[2] === "client") {
  client(process.argv[3], Number(process.argv[4]));
} else {
  serve();
}
