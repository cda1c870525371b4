// Starts the suite's own server on a free port of the loopback address alone; it would listen on all.
//
//     node origin.mjs SUITE
//
// The server itself says where it listens.
import net from 'node:net'
import path from 'node:path'

const listen = net.Server.prototype.listen
net.Server.prototype.listen = function () {
  return listen.call(this, 0, '127.0.0.1')
}
Object.assign(process.env, {
  npm_config_protocol: 'http',
  npm_config_port: '80', // of the URLs that it parses, whose paths alone it looks at
  npm_config_pidfile: '/dev/null'
})
await import(path.join(process.argv[2], 'server/server.mjs'))
