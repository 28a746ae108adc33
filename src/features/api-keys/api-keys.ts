import type { FastifyRequest } from 'fastify'
import { hashSecret } from '../../adapters/tokens.ts'
import { AppError } from '../../errors.ts'
import { commit } from '../../events/commit.ts'
import { actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { requireFreshProof } from '../auth/fresh-proof.ts'
import { membersOf, textOf } from '../auth/input.ts'
import { membershipsOf } from '../auth/queries.ts'
import { signedIn } from '../auth/sessions.ts'
import { hintOf, newApiKey } from './format.ts'
import { apiKeysOf, countApiKeys, deleteApiKey, insertApiKey } from './queries.ts'

const keysAtMost = 50

/**
 * Makes a key with which programs act as the caller: `{name, expiresAt?, role_Id?}` and a fresh proof. It is answered this one time;
 * afterwards only its hash is known. Without `role_Id` the key has whichever role its user has at the caller's tenant;
 * with it the key lives while its user has just that role, at the tenant where it is held.
 *
 * @throws {AppError} 400 for a missing name, an end that is no time to come, too many keys; 403 for a role that the
 *   caller does not have
 */
export async function createApiKey(rt: Runtime, request: FastifyRequest) {
  const { userId } = signedIn(request.caller)
  const wanted = readNewKey(request.body)
  const scope = await scopeOf(rt, request, wanted.roleId)
  await requireFreshProof(rt, request)
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
export async function listApiKeys(rt: Runtime, request: FastifyRequest) {
  return { keys: [...(await apiKeysOf(rt.db, signedIn(request.caller).userId))] }
}

/** Ends a key of the caller's in every process, sockets included; 404 when there is none. */
export async function revokeApiKey(rt: Runtime, request: FastifyRequest, id: string): Promise<{ deleted: true }> {
  const { userId } = signedIn(request.caller)
  await commit(rt, actorOf(request), async (tx) => {
    if (!(await deleteApiKey(tx, userId, id))) throw new AppError(404, 'API key not found')
    return { result: undefined, events: [{ type: 'auth.key_revoked', data: { userId, key: id.toLowerCase() } }] }
  })
  return { deleted: true }
}

function readNewKey(body: unknown) {
  const members = membersOf(body)
  const name = textOf(members.name)?.trim()
  if (name === undefined) throw new AppError(400, 'name is required')
  if (name.length > 100 || name.includes('\0')) throw new AppError(400, 'name must be at most 100 characters long')
  return { name, expiresAt: endOf(members.expiresAt), roleId: roleOf(members.role_Id) }
}

function roleOf(value: unknown): string | null {
  if (value === undefined || value === null) return null
  const roleId = textOf(value)
  if (roleId === undefined) throw new AppError(400, 'role_Id must be the id of a role')
  return roleId.toLowerCase()
}

const moment = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)$/

function endOf(value: unknown): string | null {
  if (value === undefined || value === null) return null
  if (typeof value !== 'string' || !moment.test(value) || Number.isNaN(Date.parse(value))) throw badEnd()
  return new Date(value).toISOString()
}

/** The tenant and role that a key is for. */
async function scopeOf(rt: Runtime, { caller }: FastifyRequest, roleId: string | null) {
  const here = { roleId: null, tenantId: caller.tenantId ?? null }
  if (roleId === null) return here
  const held = (await membershipsOf(rt.db, rt.catalog.current(), signedIn(caller).userId)).filter(
    ({ role }) => role.id === roleId,
  )
  const chosen = held.find(({ tenantId }) => tenantId === here.tenantId) ?? held[0]
  if (chosen === undefined) throw new AppError(403, 'You do not have this role')
  return { roleId, tenantId: chosen.tenantId }
}

const badEnd = () => new AppError(400, 'expiresAt must be a time to come, e.g. 2030-01-31T12:00:00Z')
