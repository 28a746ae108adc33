import type { Reads } from '../../db/pools.ts'
import { AppError } from '../../errors.ts'
import type { Writes } from '../../events/commit.ts'
import { type App, actorOf } from '../../http/http.ts'
import { deleteSettings, updateSettings } from './change.ts'
import {
  brandingRoute,
  byAppUrlRoute,
  changeRoute,
  keysRoute,
  readRoute,
  reloadRoute,
  removeRoute,
  tenantOf,
} from './declarations.ts'
import { kindOf, settingsKeys } from './keys.ts'
import { administratorSettings, brandingOf, imagesOf, publicSettings } from './settings.ts'
import type { CurrentSettings } from './store.ts'

/** Settings that a frontend needs before anybody signs in; administrators see the rest of GET /settings too. */
export function settingsRoutes(app: App, deps: Reads & CurrentSettings): void {
  app.get('/settings', readRoute, async (request) => {
    const row = deps.settings.current(tenantOf(request.query) ?? request.caller.tenantId)
    const shown = request.caller.admin ? administratorSettings(row) : publicSettings(row)
    return { data: { ...shown, ...(await imagesOf(deps, row)) } }
  })
  app.get('/settings/by-app-url', byAppUrlRoute, async (request) => {
    const row = deps.settings.byAppUrl(request.query.app_url)
    if (row === undefined) throw new AppError(404, 'No settings found with the provided app_url')
    return { data: { ...publicSettings(row), ...(await imagesOf(deps, row)) } }
  })
  app.get('/settings/branding', brandingRoute, async (request) => ({
    data: brandingOf(deps.settings.current(tenantOf(request.query))),
  }))
}

/** Emits: system.settings. */
export function settingsAdminRoutes(app: App, deps: Reads & Writes & CurrentSettings): void {
  app.patch('/settings', changeRoute, async (request) => {
    const row = await updateSettings(deps, actorOf(request), tenantOf(request.query) ?? null, request.body)
    return { data: { ...administratorSettings(row), ...(await imagesOf(deps, row)) } }
  })
  app.get('/settings/keys', keysRoute, async () => ({ data: formKeys }))
  app.post('/settings/reload', reloadRoute, async (request) => {
    const tenantId = tenantOf(request.query)
    await deps.settings.reload()
    const message = 'settings reloaded successfully'
    return { message: tenantId === undefined ? `Global ${message}` : `Tenant ${message} for: ${tenantId}` }
  })
  app.delete('/settings/tenant', removeRoute, async (request) => {
    await deleteSettings(deps, actorOf(request), request.query.tenant_id)
    return { message: 'Tenant settings deleted successfully' }
  })
}

const formKeys = [...settingsKeys].map(([name, key]) => {
  const { expected, isPublic } = key
  return { name, expected, isPublic, kind: kindOf(key) }
})
