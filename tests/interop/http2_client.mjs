// Node.js as a client of HTTP/2: ten requests at a time over one connection.
//
//     node http2_client.mjs PORT PATH REQUESTS
import http2 from "node:http2";

const [port, path, requests] = process.argv.slice(2);
const client = http2.connect(`http://127.0.0.1:${port}`);
let [left, good] = [Number(requests), 0];

function get() {
  return new Promise((resolve, reject) => {
    const stream = client.request({ ":path": path });
    let text = "";
    stream.on("response", (fields) => { good += fields[":status"] === 200 ? 1 : 0; });
    stream.on("data", (part) => { text += part; });
    stream.on("end", () => text === "ok" ? resolve() : reject(new Error(`"${text}" was answered`)));
    stream.on("error", reject);
  });
}

async function visit() {
  while (left-- > 0) await get();
}

client.on("goaway", (code) => { throw new Error(`GOAWAY with code ${code}`); });
await Promise.all(Array.from({ length: 10 }, visit));
client.removeAllListeners("goaway");
client.close();
console.log(good);
