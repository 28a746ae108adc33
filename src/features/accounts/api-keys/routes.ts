import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { signedIn } from '../../../access/principal.ts'
import { hashSecret } from '../../../adapters/tokens.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { type App, actorOf } from '../../../http/http.ts'
import { Deleted, Filled, Id, IdParams, Moment, NullableId, NullableText, Text } from '../../../http/shapes.ts'
import { authRoutes, lockCaller, membershipsOf, Proof, prepare, requireFreshProof } from '../auth/auth.ts'
import { hintOf, newApiKey } from './api-keys.ts'

/** A user's own API keys; never by means of one. They emit auth.key_created and auth.key_revoked. */
export function apiKeyRoutes(app: App, deps: Reads & Writes & CurrentCatalog): void {
  prepare(app)
  app.post('/auth/keys', createRoute, (request) => createApiKey(deps, request, request.body))
  app.get('/auth/keys', listRoute, (request) => listApiKeys(deps, request))
  app.delete('/auth/keys/:id', revokeRoute, (request) => revokeApiKey(deps, request, request.params.id))
}

const declared = authRoutes('API keys')

const keysAtMost = 50

/**
 * Makes a key with which programs act as the caller; needs a fresh proof. The key is answered this one time;
 * afterwards only its hash is known. Without `role_Id` the key has whichever role its user has at the caller's tenant;
 * with it the key lives while its user has just that role, at the tenant where it is held.
 *
 * @throws {AppError} 400 for an end that is no time to come, too many keys; 403 for a role that the
 *   caller does not have
 */
async function createApiKey(
  deps: Reads & Writes & CurrentCatalog,
  request: FastifyRequest,
  body: Static<typeof NewKeyBody>,
) {
  const { userId } = signedIn(request.caller)
  const wanted = newKeyOf(body)
  const scope = await scopeOf(deps, request, wanted.roleId)
  const proven = await requireFreshProof(deps, request, body)
  const key = newApiKey()
  const created = await commit(deps, actorOf(request), async (tx) => {
    // Locks the account, so others who make one wait, and no number of them makes too many.
    await lockCaller(tx, request, proven)
    if ((await countApiKeys(tx, userId)) >= keysAtMost) throw new AppError(400, `At most ${keysAtMost} API keys`)
    const row = await insertApiKey(tx, { ...wanted, ...scope, userId, hash: hashSecret(key), hint: hintOf(key) })
    if (row === undefined) throw badEnd()
    return { result: row, events: [{ type: 'auth.key_created', data: { userId, key: row.id } }] }
  })
  return { key, apiKey: created }
}

/** The caller's keys, without what they open with. */
async function listApiKeys({ db }: Reads, request: FastifyRequest) {
  return { keys: [...(await apiKeysOf(db, signedIn(request.caller).userId))] }
}

/** Ends a key of the caller's in every process, sockets included; 404 when there is none. */
async function revokeApiKey(deps: Writes, request: FastifyRequest, id: string): Promise<{ deleted: true }> {
  const { userId } = signedIn(request.caller)
  await commit(deps, actorOf(request), async (tx) => {
    if (!(await deleteApiKey(tx, userId, id))) throw new AppError(404, 'API key not found')
    return { result: undefined, events: [{ type: 'auth.key_revoked', data: { userId, key: id.toLowerCase() } }] }
  })
  return { deleted: true }
}

function newKeyOf({ name: typed, expiresAt, role_Id }: Static<typeof NewKeyBody>) {
  const name = typed.trim()
  if (name.length > 100 || name.includes('\0')) throw new AppError(400, 'name must be at most 100 characters long')
  return {
    name,
    expiresAt: expiresAt === undefined ? null : new Date(expiresAt).toISOString(),
    roleId: role_Id?.toLowerCase() ?? null,
  }
}

/** The tenant and role that a key is for. */
async function scopeOf({ db, catalog }: Reads & CurrentCatalog, { caller }: FastifyRequest, roleId: string | null) {
  const here = { roleId: null, tenantId: caller.tenantId ?? null }
  if (roleId === null) return here
  const held = (await membershipsOf(db, catalog.current(), signedIn(caller).userId)).filter(
    ({ role }) => role.id === roleId,
  )
  const chosen = held.find(({ tenantId }) => tenantId === here.tenantId) ?? held[0]
  if (chosen === undefined) throw new AppError(403, 'You do not have this role')
  return { roleId, tenantId: chosen.tenantId }
}

const badEnd = () => new AppError(400, noEnd)

type NewApiKey = {
  readonly name: string
  readonly userId: string
  /** Null: the role that the user has at the tenant, whichever that is. */
  readonly roleId: string | null
  readonly tenantId: string | null
  readonly hash: string
  readonly hint: string
  /** ISO 8601 with a zone; null: no end. */
  readonly expiresAt: string | null
}

/** A key as its owner sees it; times in wire form. */
type ApiKey = {
  readonly id: string
  readonly name: string
  readonly hint: string
  readonly role_Id: string | null
  readonly tenant_Id: string | null
  readonly expiresAt: string | null
  readonly lastUsedAt: string | null
  readonly createdAt: string
}

/** Undefined when the key would have ended already, by the database's clock. */
function insertApiKey(tx: Tx, key: NewApiKey): Promise<ApiKey | undefined> {
  return tx.maybeOne<ApiKey>(sql`
    insert into "svc_ApiKey" (name, "user_Id", "role_Id", "tenant_Id", hash, hint, "expiresAt")
    select ${key.name}, ${key.userId}::uuid, ${key.roleId}::uuid, ${key.tenantId}::uuid, ${key.hash}, ${key.hint}, ends.at
    from (select ${key.expiresAt}::timestamptz as at) ends
    where ends.at is null or ends.at > now()
    returning ${shown}`)
}

async function countApiKeys(tx: Tx, userId: string): Promise<number> {
  const { count } = await tx.one<{ count: number }>(sql`
    select count(*)::int as count from "svc_ApiKey" where "user_Id" = ${userId}`)
  return count
}

/** A user's keys, the newest first, ended ones too. */
function apiKeysOf(db: Reader, userId: string): Promise<readonly ApiKey[]> {
  return db.any<ApiKey>(sql`
    select ${shown} from "svc_ApiKey" where "user_Id" = ${userId} order by "createdAt" desc, id`)
}

/** False when the user has no such key. */
async function deleteApiKey(tx: Tx, userId: string, id: string): Promise<boolean> {
  const rows = await tx.any(sql`
    delete from "svc_ApiKey" where id::text = ${id.toLowerCase()} and "user_Id" = ${userId} returning id`)
  return rows.length === 1
}

const wire = (column: string) =>
  sql`to_char(${sql.identifier([column])} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as ${sql.identifier([column])}`

const shown = sql`id, name, hint, "role_Id", "tenant_Id", ${wire('expiresAt')}, ${wire('lastUsedAt')}, ${wire('createdAt')}`

/* Shapes of bodies and answers; `key` is answered by creation only. */

const noEnd = 'expiresAt must be a time to come, e.g. 2030-01-31T12:00:00Z'

const NewKeyBody = Type.Object(
  {
    name: Filled('Nightly import', { refusal: 'name is required', description: 'At most 100 characters.' }),
    expiresAt: Type.Optional(Moment({ refusal: noEnd, examples: ['2030-01-31T12:00:00Z'] })),
    role_Id: Type.Optional(
      Filled('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', {
        refusal: 'role_Id must be the id of a role',
        description: 'The key lives while you have just this role; without it the key has whichever you have.',
      }),
    ),
    ...Proof,
  },
  {
    additionalProperties: false,
    unknown: 'a key acts with the whole present role of its user',
    examples: [{ name: 'Nightly import', expiresAt: '2030-01-31T12:00:00Z' }],
  },
)

const ApiKeyShape = Type.Object({
  id: Id(),
  name: Text('Nightly import'),
  hint: Text('dbk_…4f2a'),
  role_Id: NullableId(),
  tenant_Id: NullableId(),
  expiresAt: NullableText('2030-01-31T12:00:00Z'),
  lastUsedAt: NullableText('2026-03-14T09:26:53.589Z'),
  createdAt: Text('2026-03-14T09:26:53.589Z'),
})

const CreatedKeyShape = Type.Object({ key: Text('dbk_5f1d7a84db00d2fce00b31a7fc73224f'), apiKey: ApiKeyShape })

const KeysShape = Type.Object({ keys: Type.Array(ApiKeyShape) })

const createRoute = declared({
  summary: 'Make an API key',
  scope: 'none',
  description: 'The key is answered this one time.',
  body: NewKeyBody,
  response: { 200: CreatedKeyShape },
})
const listRoute = declared({ summary: 'List your API keys', scope: 'none', response: { 200: KeysShape } })
const revokeRoute = declared({
  summary: 'Revoke an API key',
  scope: 'none',
  params: IdParams,
  response: { 200: Deleted },
})
