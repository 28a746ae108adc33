import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { signedIn } from '../../../access/principal.ts'
import { hashSecret } from '../../../adapters/tokens.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import { commit } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { membershipsOf, requireFreshProof } from '../auth/auth.ts'
import { hintOf, newApiKey } from './api-keys.ts'
import { apiKeysOf, countApiKeys, deleteApiKey, insertApiKey } from './queries.ts'
import { type NewKeyBody, noEnd } from './schema.ts'

const keysAtMost = 50

/**
 * Makes a key with which programs act as the caller; needs a fresh proof. The key is answered this one time;
 * afterwards only its hash is known. Without `role_Id` the key has whichever role its user has at the caller's tenant;
 * with it the key lives while its user has just that role, at the tenant where it is held.
 *
 * @throws {AppError} 400 for an end that is no time to come, too many keys; 403 for a role that the
 *   caller does not have
 */
export async function createApiKey(
  rt: Reads & Writes & CurrentCatalog,
  request: FastifyRequest,
  body: Static<typeof NewKeyBody>,
) {
  const { userId } = signedIn(request.caller)
  const wanted = newKeyOf(body)
  const scope = await scopeOf(rt, request, wanted.roleId)
  await requireFreshProof(rt, request, body)
  const key = newApiKey()
  const created = await commit(rt, actorOf(request), async (tx) => {
    if ((await countApiKeys(tx, userId)) >= keysAtMost) throw new AppError(400, `At most ${keysAtMost} API keys`)
    const row = await insertApiKey(tx, { ...wanted, ...scope, userId, hash: hashSecret(key), hint: hintOf(key) })
    if (row === undefined) throw badEnd()
    return { result: row, events: [{ type: 'auth.key_created', data: { userId, key: row.id } }] }
  })
  return { key, apiKey: created }
}

/** The caller's keys, without what they open with. */
export async function listApiKeys(rt: Reads, request: FastifyRequest) {
  return { keys: [...(await apiKeysOf(rt.db, signedIn(request.caller).userId))] }
}

/** Ends a key of the caller's in every process, sockets included; 404 when there is none. */
export async function revokeApiKey(rt: Writes, request: FastifyRequest, id: string): Promise<{ deleted: true }> {
  const { userId } = signedIn(request.caller)
  await commit(rt, actorOf(request), async (tx) => {
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
async function scopeOf(rt: Reads & CurrentCatalog, { caller }: FastifyRequest, roleId: string | null) {
  const here = { roleId: null, tenantId: caller.tenantId ?? null }
  if (roleId === null) return here
  const held = (await membershipsOf(rt.db, rt.catalog.current(), signedIn(caller).userId)).filter(
    ({ role }) => role.id === roleId,
  )
  const chosen = held.find(({ tenantId }) => tenantId === here.tenantId) ?? held[0]
  if (chosen === undefined) throw new AppError(403, 'You do not have this role')
  return { roleId, tenantId: chosen.tenantId }
}

const badEnd = () => new AppError(400, noEnd)
