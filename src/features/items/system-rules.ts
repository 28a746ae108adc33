import { hashPassword } from '../../adapters/passwords.ts'
import type { Collection } from '../../catalog/catalog.ts'
import { writersOf } from '../../catalog/system-collections.ts'
import { sql } from '../../db/sql.ts'
import { type Action, AppError, errors } from '../../errors.ts'
import type { Access } from '../../query/access.ts'
import type { Runtime } from '../../runtime.ts'
import { canonicalEmail } from '../auth/email-address.ts'
import { checkNewPassword } from '../auth/input.ts'
import { mayAssignRoles } from '../identity/decider.ts'
import { checkRuleCells, checkRuleDelete } from '../permissions/check.ts'
import { administratorRole, publicRole } from '../permissions/permissions.ts'
import { readsLikeBuiltIn } from '../permissions/role-names.ts'
import { checkSettingsDelete, settingsCells } from '../settings/cells.ts'
import { checkTemplateCells } from '../templates/check.ts'
import type { Cell, PayloadContext } from './payload.ts'
import { keyCell, withCells } from './run.ts'

/** Rules of system collections that hold however their rows are written (quality P-18, P-20; spec/items.md §11). */

/** 403 for collections that the generic routes never write, and for those that only an administrator may. */
export function checkWritable(
  rt: Runtime,
  { name }: Collection,
  access: Access,
  action: Exclude<Action, 'read'>,
): void {
  const writers = writersOf(name, action)
  const refused = writers === 'nobody' || (writers === 'administrators' && !access.admin)
  // A role that may assign none has no use for memberships, whatever it was granted.
  if (refused || (name === 'svc_UserRole' && !mayAssignRoles(rt, access))) throw errors.actionDenied(action, name)
  if (name === 'svc_Sessions' && access.byKey) throw errors.sessionNeeded()
}

/** What a row must pass or become before it is written: hashed passwords, canonical addresses, protected roles. */
export async function beforeWrite(
  rt: Runtime,
  { collection, access }: PayloadContext,
  cells: readonly Cell[],
  id?: string,
): Promise<readonly Cell[]> {
  await checkRuleCells(rt, collection.name, cells, id)
  if (collection.name === 'svc_User' && access.byKey && cells.some(({ field }) => field.name === 'password'))
    throw errors.sessionNeeded()
  if (collection.name === 'svc_User') return Promise.all(cells.map((cell) => userCell(rt, cell)))
  if (collection.name === 'svc_Settings') return settingsCells(rt, cells, id)
  if (collection.name === 'svc_Template') await checkTemplateCells(rt, cells)
  if (collection.name === 'svc_Role') await protectRoles(rt, cells, id)
  if (collection.name === 'svc_Tasks' && id !== undefined) return taskCells(rt, collection, cells)
  return cells
}

/**
 * A status that somebody sets takes the task away from the attempt that runs it: `started_at` says since when it is
 * Running, or that it is not (realtime facts §3).
 */
function taskCells(rt: Runtime, collection: Collection, cells: readonly Cell[]): readonly Cell[] {
  const status = cells.find((cell) => cell.field.name === 'task_status')?.value
  if (status === undefined) return cells
  const startedAt = status === 'Running' ? rt.clock().toISOString() : null
  const state = { started_at: startedAt, heartbeat_at: null, attempt_token: null, retry_at: null }
  const set = Object.entries(state).map(([name, value]) => keyCell(collection.fields.get(name)!, value))
  return withCells(cells, set)
}

/** Deleting `administrator`, `public` or `user` would lock everybody out. */
export async function beforeDelete(rt: Runtime, collection: Collection, ids: readonly string[]): Promise<void> {
  await checkRuleDelete(rt, collection.name, ids)
  if (collection.name === 'svc_Settings') await checkSettingsDelete(rt, ids)
  if (collection.name !== 'svc_Role') return
  for (const id of ids) if (await isBuiltIn(rt, id)) throw new AppError(403, 'System roles cannot be deleted')
}

async function userCell(rt: Runtime, cell: Cell): Promise<Cell> {
  if (cell.value === null) return cell
  if (cell.field.name === 'password') {
    const password = checkedPassword(cell.value as string)
    return { ...cell, value: await hashPassword(password, rt.config.auth.passwordHashCost) }
  }
  if (cell.field.name !== 'email') return cell
  const email = canonicalEmail(cell.value as string)
  if (email === undefined)
    throw errors.validation([{ field: 'email', message: 'is not an e-mail address', rule: 'isEmail' }])
  return { ...cell, value: email }
}

function checkedPassword(password: string): string {
  checkNewPassword(password)
  return password
}

const builtInRoles = new Set([administratorRole, publicRole, 'user'])

async function protectRoles(rt: Runtime, cells: readonly Cell[], id: string | undefined): Promise<void> {
  const name = cells.find((cell) => cell.field.name === 'name')?.value
  if (typeof name !== 'string') return
  const renamed = id !== undefined && (await isBuiltIn(rt, id))
  if (renamed) throw new AppError(403, 'System role names cannot be changed')
  if (readsLikeBuiltIn(name)) throw new AppError(403, 'System role names cannot be changed')
}

async function isBuiltIn(rt: Runtime, id: string): Promise<boolean> {
  const role = await rt.db.maybeOne<{ name: string }>(sql.unsafe`select name from "svc_Role" where id::text = ${id}`)
  return role !== undefined && builtInRoles.has(role.name)
}
