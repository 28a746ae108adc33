import { systemAccess } from '../../query/access.ts'
import type { Runtime } from '../../runtime.ts'
import type { Writer } from './context.ts'

/** Who acts, as extensions see it (spec/permissions.md §6). A copy: what an extension does to it changes nothing. */
export type Accountability = {
  /** The user's own row without hidden fields; null for callers without a session. */
  readonly user: Readonly<Record<string, unknown>> | null
  readonly role: Readonly<Record<string, unknown>> | null
  /** The rows of svc_Permission of the role. */
  readonly permissions: readonly Readonly<Record<string, unknown>>[]
  /** The id of the tenant that the caller works in. */
  readonly tenant: string | null
  readonly ipaddress: string | null
}

/** Null for the platform itself. */
export function accountabilityOf(rt: Runtime, writer: Writer): Accountability | null {
  const { access, actor, user } = writer
  if (access === systemAccess) return null
  const { roles, permissions } = rt.access.current()
  const accountability = structuredClone({
    user: user ?? (access.userId === undefined ? null : { id: access.userId }),
    role: roles.get(access.roleId) ?? null,
    permissions: permissions.get(access.roleId) ?? [],
    tenant: access.tenantId ?? null,
    ipaddress: actor.ip ?? null,
  })
  writers.set(accountability, writer)
  return accountability
}

/**
 * The writer that an accountability was made for. What somebody may is never read from the members, so that they cannot
 * be used to get more: an object that is not ours is refused.
 */
export function writerBehind(accountability: Accountability): Writer {
  const writer = writers.get(accountability)
  if (writer === undefined) throw new TypeError('accountability must be the very object that the platform handed out')
  return writer
}

const writers = new WeakMap<Accountability, Writer>()
