import type { FastifyRequest } from 'fastify'
import { AppError } from '../../errors.ts'
import { type App, actorOf } from '../../http.ts'
import type { Runtime } from '../../runtime.ts'
import { deleteSettings, updateSettings } from './change.ts'
import { administratorSettings, brandingOf, publicSettings, settingsNotFound, tenantOfQuery } from './settings.ts'

/** What a frontend needs before anybody signs in; administrators see the rest of GET /settings too. */
export function settingsRoutes(app: App, rt: Runtime): void {
  app.get('/settings', async (request) => {
    const row = rt.settings.current(tenantOfQuery(request) ?? request.caller.tenantId)
    return { data: request.caller.admin ? administratorSettings(row) : publicSettings(row) }
  })
  app.get('/settings/by-app-url', async (request) => {
    const row = rt.settings.byAppUrl(required(request, 'app_url'))
    if (row === undefined) throw new AppError(404, 'No settings found with the provided app_url')
    return { data: publicSettings(row) }
  })
  app.get('/settings/branding', async (request) => {
    required(request, 'tenant_id')
    return { data: brandingOf(rt.settings.current(tenantOfQuery(request))) }
  })
}

/** Emits: system.settings. */
export function settingsAdminRoutes(app: App, rt: Runtime): void {
  app.patch('/settings', { config: { failureMessage: 'Settings update failed' } }, async (request) => {
    const row = await updateSettings(rt, actorOf(request), tenantOfQuery(request) ?? null, request.body)
    return { data: administratorSettings(row) }
  })
  app.post('/settings/reload', async (request) => {
    const tenantId = tenantOfQuery(request)
    await rt.settings.reload()
    const message = 'settings reloaded successfully'
    return { message: tenantId === undefined ? `Global ${message}` : `Tenant ${message} for: ${tenantId}` }
  })
  app.delete('/settings/tenant', async (request) => {
    required(request, 'tenant_id')
    const tenantId = tenantOfQuery(request)
    if (tenantId === undefined) throw settingsNotFound()
    await deleteSettings(rt, actorOf(request), tenantId)
    return { message: 'Tenant settings deleted successfully' }
  })
}

function required(request: FastifyRequest, name: 'app_url' | 'tenant_id'): string {
  const value = (request.query as Record<string, unknown>)[name]
  if (typeof value === 'string' && value !== '') return value
  throw new AppError(400, `${name} query parameter is required`)
}
