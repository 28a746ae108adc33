import type { Collection } from '../../catalog/catalog.ts'
import { endAccess } from '../auth/ownership.ts'
import { accountOf } from '../auth/queries.ts'
import type { Cell } from './payload.ts'
import type { Run } from './run.ts'

/** Whether these cells give a user another password, or take it away. */
export function setPasswords({ name }: Collection, cells: readonly Cell[]): boolean {
  return name === 'svc_User' && cells.some(({ field }) => field.name === 'password')
}

/**
 * What a new password means wherever it is set (quality A-15): everything else that opens the account ends, but the
 * session of the writer itself. In the transaction that wrote the row, and after it, so that a sign-in at the same time is
 * either refused or ended. The id is the JSON text of the user's key.
 */
export async function passwordChanged({ tx, writer, scope }: Run, id: string): Promise<void> {
  const userId = String(JSON.parse(id))
  const account = await accountOf(tx, userId)
  await endAccess(tx, account!, writer.sessionId)
  scope.events.push({ type: 'auth.password_change', data: { userId } })
}
