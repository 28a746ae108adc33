import { AppError } from '../../errors.ts'
import type { Writes } from '../../events/commit.ts'
import { commit } from '../../events/commit.ts'
import type { Actor } from '../../events/types.ts'
import { checkedSettings } from './keys.ts'
import { deleteTenantSettings, insertSettings, lockedSettings, tenantExists, updateSettingsRow } from './queries.ts'
import { settingsNotFound, storedValues } from './settings.ts'
import type { CurrentSettings, SettingsRow } from './store.ts'

/**
 * Sets some keys of the installation's settings, or of a tenant's, which come into being with the first one; answers
 * them as they are then. 400 `Invalid settings data`; 404 for an unknown tenant; 409 for an app_url somebody else has.
 */
export async function updateSettings(
  rt: Writes & CurrentSettings,
  actor: Actor,
  tenantId: string | null,
  body: unknown,
): Promise<SettingsRow> {
  const values = storedValues(rt.config, checkedSettings(body, tenantId))
  await commit(rt, actor, async (tx) => {
    const id = await lockedSettings(tx, tenantId)
    if (id !== undefined) await updateSettingsRow(tx, id, values)
    else if (tenantId !== null && (await tenantExists(tx, tenantId))) await insertSettings(tx, tenantId, values)
    else throw new AppError(404, 'Tenant not found')
    return { result: null, events: [{ type: 'system.settings', data: { tenantId, keys: Object.keys(values) } }] }
  })
  return rt.settings.current(tenantId ?? undefined)
}

/** The tenant follows the installation's settings again. 404 `Settings not found` where it has none of its own. */
export async function deleteSettings(rt: Writes, actor: Actor, tenantId: string): Promise<void> {
  await commit(rt, actor, async (tx) => {
    if ((await deleteTenantSettings(tx, tenantId)) === 0) throw settingsNotFound()
    return { result: null, events: [{ type: 'system.settings', data: { tenantId, keys: [] } }] }
  })
}
