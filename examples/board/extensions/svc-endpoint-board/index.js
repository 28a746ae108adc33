import { readFile } from 'node:fs/promises'
import { extname, join } from 'node:path'

const site = join(import.meta.dirname, '../../site')
const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css' }
const policy =
  "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"

/** The pages of the board below `/board`, from the same origin as the API: no CORS, and a cookie that no script can read. */
export default {
  id: 'board',
  handler(app) {
    const send = async ({ params }, reply) => {
      const path = params['*'] ?? ''
      const name = /^[\w-]+\.(js|css)$/.test(path) ? path : 'index.html'
      const content = await readFile(join(site, name)).catch(() => undefined)
      if (content === undefined) throw Object.assign(new Error('There is no such file'), { status: 404 })
      reply.header('content-security-policy', policy).header('cache-control', 'no-cache')
      return reply.type(`${types[extname(name)]}; charset=utf-8`).send(content)
    }
    app.get('/', send)
    app.get('/*', send)
  },
}
