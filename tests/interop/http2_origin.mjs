// An app before which clients of HTTP/2 are tried: pages over HTTP/1.1, and calls of gRPC that are answered with what
// they sent.
//
//     node http2_origin.mjs PORT_OF_PAGES PORT_OF_CALLS
import http from "node:http";
import http2 from "node:http2";

const [pages, calls] = process.argv.slice(2).map(Number);

http.createServer((request, response) => {
  const lifetime = request.url.startsWith("/stored") ? "max-age=3600" : "no-store";
  response.writeHead(200, { "content-type": "text/html", "cache-control": lifetime, "content-length": 2 });
  response.end("ok");
}).listen(pages, "127.0.0.1");

http2.createServer().on("stream", (stream) => {
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  stream.on("error", () => {});
  stream.pipe(stream);
}).listen(calls, "127.0.0.1");
