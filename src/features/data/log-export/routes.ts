import { Type } from '../../../adapters/typebox.ts'
import type { App } from '../../../http/http.ts'
import { routesOf } from '../../../http/route.ts'
import { badQuery, Id, Moment, NullableText, Text } from '../../../http/shapes.ts'
import { exportLog, type LogReads, readHead, readLogKeys } from './log-export.ts'

/** The log for programs that keep a copy of it; open to callers who may read svc_AuditLog (docs/audit-log.md). */
export function logRoutes(app: App, deps: LogReads): void {
  app.get('/log/export', exportRoute, async (request, reply) => {
    const { collection, action, ...others } = request.query
    const asked = { ...others, collections: listIn(collection), actions: listIn(action) }
    const { lines, cursor } = await exportLog(deps, request.caller.access, asked)
    return reply.type('application/x-ndjson; charset=utf-8').header('x-log-cursor', cursor).send(lines)
  })
}

/** Heads of the log, for administrators to keep elsewhere. */
export function logAdminRoutes(app: App, deps: LogReads): void {
  app.get('/log/head', headRoute, async () => ({ data: await readHead(deps) }))
}

export function logKeyRoutes(app: App, deps: LogReads): void {
  app.get('/.well-known/daybook-log-key', keyRoute, async () => ({ data: await readLogKeys(deps) }))
}

const listIn = (text: string | undefined): readonly string[] | undefined =>
  text?.split(',').filter((name) => name !== '')

const declared = routesOf('Log')
const moment = (name: string) =>
  Type.Optional(Moment({ refusal: badQuery(`${name}: expected a time, such as 2026-03-14T09:26:53Z`) }))
const id = (name: string) => Type.Optional(Id({ refusal: badQuery(`${name}: expected the id of one`) }))

const exportRoute = declared({
  summary: 'Export the log',
  scope: 'read',
  description: [
    'NDJSON: an event a line, in an order from which nothing is missing and nothing comes twice. To go on after a line, send',
    'its `cursor` as `since`; to go on after the whole answer, the header `x-log-cursor`. 403 for a filter by a field that the',
    'permission to read `svc_AuditLog` does not show.',
  ].join(' '),
  query: Type.Object({
    since: Type.Optional(Text('cy84', { description: 'A cursor; without it everything that is kept.' })),
    collection: Type.Optional(Text('products,orders', { description: 'All unless given.' })),
    action: Type.Optional(Text('create,update', { description: 'All unless given.' })),
    actor: id('actor'),
    tenant: id('tenant'),
    from: moment('from'),
    to: moment('to'),
  }),
  response: { 200: Text('{"cursor":"ZS9…","position":"4711"}', { contentMediaType: 'application/x-ndjson' }) },
  sendsText: true,
})

const HeadShape = Type.Object({
  number: Type.Integer({ examples: [4711] }),
  hash: Text('9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08'),
  at: Moment(),
  statement: Text('{"seal":1,"number":4711}', { description: 'The text that was signed.' }),
  signature: Text('9vVYkCmv…', { description: 'Ed25519, base64url.' }),
  key: Text('5f2a9c0d1e7b3846'),
  publicKey: Text('11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo', { description: 'Base64url.' }),
})

const headRoute = declared({
  summary: 'Read the newest head of the sealed log',
  scope: 'read',
  description: 'To be kept where nobody of this installation can change it: everything before it can be proven.',
  response: { 200: Type.Object({ data: HeadShape }) },
})

const keyRoute = declared({
  summary: 'Read the public keys of the sealed log',
  scope: 'none',
  response: {
    200: Type.Object({
      data: Type.Object({
        algorithm: Text('Ed25519'),
        key: NullableText('5f2a9c0d1e7b3846'),
        publicKey: NullableText('11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo'),
        keys: Type.Array(
          Type.Object({
            id: Text('5f2a9c0d1e7b3846'),
            publicKey: Text('11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo'),
            since: Moment(),
            ours: Type.Boolean({ description: 'Whether it is of the secrets that this installation has now.' }),
          }),
        ),
      }),
    }),
  },
})
