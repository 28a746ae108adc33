import type { Access } from '../../query/access.ts'
import type { Role } from '../permissions/store.ts'

/** Who calls: a user with a live session or an API key, or the public role. */
export type Caller = {
  readonly role: Role
  readonly admin: boolean
  readonly userId: string | undefined
  readonly tenantId: string | undefined
  readonly sessionId: string | undefined
  /** The API key that stands in for a session; never both. */
  readonly keyId: string | undefined
  /** The user's own row in wire form, without hidden fields; undefined for the public role. */
  readonly user: Readonly<Record<string, unknown>> | undefined
  readonly access: Access
}
