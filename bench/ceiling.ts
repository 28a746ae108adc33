/**
 * The ceiling: what a good engineer writes by hand for exactly these requests, with Fastify, pg and prepared statements.
 * It checks the token's signature and nothing else: no session, no permission but the owner's condition, no validation,
 * no log. A process of its own, configured by variables.
 */
import { createHash, createHmac, createSecretKey, randomUUID } from 'node:crypto'
import { open as openFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { basename, join } from 'node:path'
import multipart from '@fastify/multipart'
import bcrypt from 'bcrypt'
import Fastify, { type FastifyInstance, type FastifyRequest } from 'fastify'
import jwt from 'jsonwebtoken'
import pg from 'pg'
import {
  bulkSql,
  createSql,
  deleteSql,
  listSql,
  loginSql,
  meSql,
  nestedListSql,
  oneSql,
  reportSql,
  updateSql,
} from './ceiling-sql.ts'
import { type Twin, twins } from './shape.ts'

type Claims = { id: string; role_Id: string }
declare module 'fastify' {
  interface FastifyRequest {
    claims: Claims
  }
}

const { DATABASE_URL, SECRET_KEY, ADMIN_ROLE_ID, FILES_DIR = '', PORT = '0' } = process.env
const key = createSecretKey(SECRET_KEY!, 'utf8')
const pool = new pg.Pool({
  connectionString: DATABASE_URL,
  max: Math.max(8, availableParallelism() * 4),
  options: '-c search_path=ceiling,public -c timezone=UTC',
})
const app = Fastify()

app.decorateRequest('claims', null as never)

/** Statement names by text, so that each is planned once per connection. */
const names = new Map<string, string>()

async function rows(text: string, values: unknown[]): Promise<{ data: string; total?: string }[]> {
  const name = names.get(text) ?? `s${names.size}`
  names.set(text, name)
  return (await pool.query({ name, text, values })).rows
}

app.register(async (open) => {
  open.post<{ Body: { email: string; password: string } }>('/auth/login', async ({ body }, reply) => {
    const [row] = (await pool.query({ name: 'login', text: loginSql, values: [body.email] })).rows
    const hash = createHmac('sha384', 'daybook password').update(body.password, 'utf8').digest('base64')
    if (!row || !(await bcrypt.compare(hash, row.password.slice('b1:'.length)))) return reply.code(401).send()
    const claims = { id: row.user.id, role_Id: row.role.id }
    return { token: jwt.sign(claims, key, { algorithm: 'HS256', expiresIn: '7d' }), user: row.user, role: row.role }
  })
  open.get('/health', () => ({ status: 'ok' }))
})

type List = { Querystring: { category: string; from: string; to: string } }
type Item = { Params: { id: string }; Body: Record<string, unknown> }

const json = 'application/json; charset=utf-8'
/** The condition's parameter, for callers that have a rule. */
const owner = ({ claims }: FastifyRequest): string[] => (claims.role_Id === ADMIN_ROLE_ID ? [] : [claims.id])

app.register(async (api) => {
  api.addHook('onRequest', (request, reply, next) => {
    try {
      request.claims = jwt.verify(request.headers.authorization!.slice('Bearer '.length), key, {
        algorithms: ['HS256'],
      }) as Claims
      next()
    } catch {
      reply.code(401).send()
    }
  })
  api.get('/auth/me', async ({ claims }, reply) => {
    const [row] = await rows(meSql, [claims.id])
    return reply.type(json).send(row!.data)
  })
  await fileRoutes(api)
  for (const table of twins) {
    readRoutes(api, table)
    writeRoutes(api, table)
  }
})

process.on('SIGTERM', () => void app.close().then(() => pool.end()))
await app.listen({ host: '127.0.0.1', port: Number(PORT) })
process.stdout.write(`${JSON.stringify({ msg: 'ready', address: app.addresses() })}\n`)

async function fileRoutes(api: FastifyInstance): Promise<void> {
  api.get<{ Params: { name: string } }>('/static/:name', async ({ params, headers }, reply) => {
    const file = await openFile(join(FILES_DIR, basename(params.name)))
    const { size, mtimeMs } = await file.stat()
    const etag = `"${size}-${mtimeMs}"`
    if (headers['if-none-match'] === etag) {
      await file.close()
      return reply.code(304).header('etag', etag).send()
    }
    const type = /webp$/.test(params.name) ? 'image/webp' : 'application/octet-stream'
    return reply.headers({ etag, 'content-length': size, 'content-type': type }).send(file.createReadStream())
  })
  await pool.query(
    'create table if not exists public.plain_file (id uuid primary key, name text, size bigint, hash text)',
  )
  api.register(multipart, { limits: { fileSize: 50 * 1024 * 1024 } })
  api.post('/files', async (request) => {
    const part = (await request.file())!
    const id = randomUUID()
    const file = await openFile(join(FILES_DIR, `plain-${id}`), 'wx')
    const digest = createHash('sha256')
    let size = 0
    for await (const piece of part.file) {
      size += piece.length
      digest.update(piece)
      await file.write(piece)
    }
    await file.sync()
    await file.close()
    await rows('insert into public.plain_file values ($1, $2, $3, $4)', [id, part.filename, size, digest.digest('hex')])
    return { data: id }
  })
}

function readRoutes(api: FastifyInstance, table: Twin): void {
  api.get<List>(`/${table}`, async (request, reply) => {
    const { category, from, to } = request.query
    const own = owner(request)
    const [row] = await rows(listSql(table, own.length > 0), [category, from, to, ...own])
    return reply.type(json).send(`{"data":${row!.data},"totalCount":${row!.total}}`)
  })
  api.get<{ Querystring: { count?: string } }>(`/${table}/nested`, async (request, reply) => {
    const own = owner(request)
    const counted = request.query.count !== 'false'
    const [row] = await rows(nestedListSql(table, own.length > 0, counted), own)
    return reply.type(json).send(counted ? `{"data":${row!.data},"totalCount":${row!.total}}` : `{"data":${row!.data}}`)
  })
  for (const by of ['category', 'month'] as const)
    api.post(`/${table}/by-${by}`, async (request, reply) => {
      const own = owner(request)
      const [row] = await rows(reportSql(table, by, own.length > 0), own)
      return reply.type(json).send(`{"data":${row!.data},"totalCount":${row!.total}}`)
    })
  api.get<Item>(`/${table}/:id`, async (request, reply) => {
    const own = owner(request)
    const [row] = await rows(oneSql(table, own.length > 0), [request.params.id, ...own])
    if (row === undefined) return reply.code(403).send()
    return reply.type(json).send(`{"data":${row.data}}`)
  })
}

function writeRoutes(api: FastifyInstance, table: Twin): void {
  api.post<Item>(`/${table}`, async (request, reply) => {
    const { sku, name, description, price, stock, releasedAt, owner_Id, category_Id } = request.body
    const [own] = owner(request)
    if (own !== undefined && owner_Id !== own) return reply.code(403).send()
    const values = [sku, name, description, price, stock, releasedAt, owner_Id, category_Id]
    const [row] = await rows(createSql(table), values)
    return reply.code(201).type(json).send(`{"data":{"id":${row!.data}}}`)
  })
  api.post<{ Body: Record<string, unknown>[] }>(`/${table}/bulk`, async (request, reply) => {
    const [own] = owner(request)
    if (own !== undefined && request.body.some(({ owner_Id }) => owner_Id !== own)) return reply.code(403).send()
    const [row] = await rows(bulkSql(table), [JSON.stringify(request.body)])
    return reply.code(201).type(json).send(`{"data":${row!.data}}`)
  })
  api.delete<Item>(`/${table}/:id`, async (request, reply) => {
    const own = owner(request)
    const [row] = await rows(deleteSql(table, own.length > 0), [request.params.id, ...own])
    if (row === undefined) return reply.code(403).send()
    return reply.type(json).send(`{"data":{"id":${row.data}}}`)
  })
  api.patch<Item>(`/${table}/:id`, async (request, reply) => {
    const { name, stock } = request.body
    const own = owner(request)
    const [row] = await rows(updateSql(table, own.length > 0), [request.params.id, name, stock, ...own])
    if (row === undefined) return reply.code(403).send()
    return reply.type(json).send(`{"data":{"id":${row.data}}}`)
  })
}
