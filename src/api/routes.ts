import { type CatalogStore, withFreshCatalog } from '../catalog/store.ts'
import type { Extensions } from '../extensions/extensions.ts'
import { apiKeyRoutes } from '../features/accounts/api-keys/routes.ts'
import {
  authAdminRoutes,
  authBearerRoutes,
  authLeavingRoutes,
  authPublicRoutes,
  authSelfRoutes,
} from '../features/accounts/auth/routes.ts'
import {
  oauthMetadataRoutes,
  oauthPageRoutes,
  oauthTokenRoutes,
  userInfoRoutes,
} from '../features/accounts/oauth/routes.ts'
import { passkeyPublicRoutes, passkeyRoutes } from '../features/accounts/passkeys/routes.ts'
import { permissionAdminRoutes, permissionRoutes } from '../features/accounts/permissions/routes.ts'
import { previewAdminRoutes, previewRoutes } from '../features/accounts/preview/routes.ts'
import { socialRoutes } from '../features/accounts/social/routes.ts'
import { tenantBearerRoutes, tenantPublicRoutes } from '../features/accounts/tenants/routes.ts'
import { twoFactorPublicRoutes, twoFactorRoutes } from '../features/accounts/two-factor/routes.ts'
import { changesRoutes } from '../features/data/changes/routes.ts'
import { historyAdminRoutes, historyRoutes } from '../features/data/history/routes.ts'
import { itemImportRoutes } from '../features/data/items/import-routes.ts'
import { itemBearerRoutes, itemRoutes } from '../features/data/items/routes.ts'
import { logAdminRoutes, logKeyRoutes, logRoutes } from '../features/data/log-export/routes.ts'
import { migrationRoutes } from '../features/data/migrations/routes.ts'
import { reportRoutes } from '../features/data/reports/routes.ts'
import { schemaAdminRoutes, schemaRoutes } from '../features/data/schemas/routes.ts'
import { trashRoutes, undoRoutes } from '../features/data/undo/routes.ts'
import { assetBearerRoutes, assetRoutes } from '../features/files/assets/routes.ts'
import { fileAdminRoutes, fileBearerRoutes, fileRoutes } from '../features/files/files/routes.ts'
import { tusOfferRoutes, tusRoutes } from '../features/files/tus/routes.ts'
import { inboxRoutes } from '../features/messaging/inbox/routes.ts'
import { mailAdminRoutes } from '../features/messaging/mail/routes.ts'
import { notificationAdminRoutes, notificationRoutes } from '../features/messaging/notifications/routes.ts'
import { templateAdminRoutes, templateRoutes } from '../features/messaging/templates/routes.ts'
import { webhookRoutes } from '../features/messaging/webhooks/routes.ts'
import { consoleRoutes } from '../features/operations/console/routes.ts'
import { openapiRoutes } from '../features/operations/openapi/routes.ts'
import { opsRoutes } from '../features/operations/ops/routes.ts'
import { projectInfoRoutes } from '../features/operations/project-info/routes.ts'
import { realtimeRoutes } from '../features/operations/realtime/routes.ts'
import { viewRoutes } from '../features/operations/views/routes.ts'
import { settingsAdminRoutes, settingsRoutes } from '../features/settings/routes.ts'
import type { App } from '../http/http.ts'
import { type AccessClass, declaredRoutes } from '../http/route.ts'
import { checkPermissionFirst, limitAnonymousBodies, refuseUnknownPaths, registerAccess } from './access.ts'
import type { WebWrites } from './capabilities.ts'
import { clientModuleRoute } from './client-module.ts'
import { knowExtensions } from './extension-callers.ts'
import { consoleExtensionFileRoutes, consoleExtensionListRoute, pathsTaken, registerEndpoints } from './extensions.ts'
import { registerIdempotency } from './idempotency.ts'
import { registerLimits } from './limits.ts'
import { openMcp } from './mcp.ts'
import { doctorRoute, healthRoutes, metricsRoutes } from './monitoring.ts'
import { checkParameters } from './parameters.ts'
import type { Realtime } from './realtime.ts'

type RouteGroup = {
  readonly access: AccessClass
  readonly register: (app: App, deps: WebWrites) => void | Promise<void>
  /** Each of its requests ends with its one commit and can be read again, so it is done anew with a fresh catalog. */
  readonly isRetried?: boolean
}

/** THE list: every route of the platform, by who may call it. */
const groups: readonly RouteGroup[] = [
  { access: 'public', register: projectInfoRoutes },
  { access: 'public', register: authPublicRoutes },
  { access: 'bearer', register: authSelfRoutes },
  { access: 'session', register: authBearerRoutes },
  { access: 'leaving', register: authLeavingRoutes },
  { access: 'admin session', register: authAdminRoutes },
  { access: 'admin session', register: previewAdminRoutes },
  { access: 'session', register: previewRoutes },
  { access: 'public', register: twoFactorPublicRoutes },
  { access: 'session', register: twoFactorRoutes },
  { access: 'public', register: passkeyPublicRoutes },
  { access: 'session', register: passkeyRoutes },
  { access: 'public', register: socialRoutes },
  { access: 'public', register: oauthMetadataRoutes },
  { access: 'public', register: oauthPageRoutes },
  { access: 'public', register: oauthTokenRoutes },
  { access: 'bearer', register: userInfoRoutes },
  { access: 'session', register: apiKeyRoutes },
  { access: 'public', register: tenantPublicRoutes },
  { access: 'session', register: tenantBearerRoutes },
  { access: 'public', register: itemRoutes, isRetried: true },
  { access: 'bearer', register: itemBearerRoutes, isRetried: true },
  { access: 'bearer', register: itemImportRoutes },
  { access: 'public', register: fileRoutes },
  { access: 'bearer', register: fileBearerRoutes },
  { access: 'admin', register: fileAdminRoutes },
  { access: 'bearer', register: tusRoutes },
  { access: 'public', register: tusOfferRoutes },
  { access: 'public', register: historyRoutes, isRetried: true },
  { access: 'admin', register: historyAdminRoutes },
  { access: 'public', register: trashRoutes, isRetried: true },
  { access: 'bearer', register: undoRoutes, isRetried: true },
  { access: 'bearer', register: logRoutes },
  { access: 'admin', register: logAdminRoutes },
  { access: 'public', register: logKeyRoutes },
  { access: 'bearer', register: reportRoutes, isRetried: true },
  { access: 'public', register: changesRoutes, isRetried: true },
  { access: 'public', register: assetRoutes, isRetried: true },
  { access: 'bearer', register: assetBearerRoutes, isRetried: true },
  { access: 'public', register: schemaRoutes },
  { access: 'admin', register: schemaAdminRoutes },
  { access: 'public', register: permissionRoutes, isRetried: true },
  { access: 'admin', register: permissionAdminRoutes },
  { access: 'public', register: settingsRoutes },
  { access: 'admin', register: settingsAdminRoutes },
  { access: 'admin', register: migrationRoutes },
  { access: 'admin', register: mailAdminRoutes },
  { access: 'bearer', register: notificationRoutes, isRetried: true },
  { access: 'admin', register: notificationAdminRoutes, isRetried: true },
  { access: 'bearer', register: webhookRoutes },
  { access: 'public', register: ofWorkflows('workflowItemRoutes'), isRetried: true },
  { access: 'bearer', register: ofWorkflows('workflowRoutes') },
  { access: 'public', register: ofWorkflows('workflowWebhookRoutes') },
  { access: 'admin', register: opsRoutes },
  { access: 'admin', register: doctorRoute },
  { access: 'bearer', register: viewRoutes },
  { access: 'public', register: consoleRoutes },
  { access: 'public', register: inboxRoutes },
  { access: 'public', register: templateRoutes },
  { access: 'admin', register: templateAdminRoutes },
]

/** Workflows that are off are not there: nothing of them is loaded. */
function ofWorkflows(name: 'workflowItemRoutes' | 'workflowRoutes' | 'workflowWebhookRoutes') {
  const register = async (app: App, deps: WebWrites) => {
    if (!deps.config.workflows.enabled) return
    const routes = await import('../features/work/workflows/routes.ts')
    routes[name](app, deps)
  }
  return Object.defineProperty(register, 'name', { value: name })
}

/** Registers every group in a scope of its own, so that access is a property of the group, not of a handler. */
export function registerRoutes(
  app: App,
  deps: WebWrites,
  realtime: Realtime | undefined,
  { endpoints, consoles }: Pick<Extensions, 'endpoints' | 'consoles'>,
): void {
  const declared = declaredRoutes(app)
  const taken = pathsTaken(app, deps)
  const limits = registerLimits(app, deps)
  refuseUnknownPaths(app)
  knowExtensions(app, consoles)
  const registerMcp = openMcp(app, deps, declared)
  healthRoutes(app, deps, realtime?.feed)
  metricsRoutes(app, deps, { realtime, limits })
  registerIdempotency(app, deps)
  checkPermissionFirst(app, deps)
  const ofRealtime: RouteGroup = { access: 'admin', register: (scope) => realtimeRoutes(scope, deps, realtime?.feed) }
  const ofDescription: RouteGroup = { access: 'public', register: (scope) => openapiRoutes(scope, deps, declared) }
  const ofClient: RouteGroup = { access: 'public', register: clientModuleRoute }
  const ofTools: RouteGroup = { access: 'public', register: registerMcp }
  const ofExtensions: readonly RouteGroup[] = [
    { access: 'bearer', register: (scope) => consoleExtensionListRoute(scope, deps, consoles) },
    { access: 'public', register: (scope) => consoleExtensionFileRoutes(scope, deps, consoles) },
  ]
  const others = [ofRealtime, ofDescription, ofClient, ofTools, ...ofExtensions]
  for (const { access, register, isRetried } of [...groups, ...others])
    app.register(
      named(`${access} ${register.name}`, async (scope) => {
        registerAccess(scope as App, deps, access, limits)
        if (access === 'public') limitAnonymousBodies(scope as App)
        checkParameters(scope as App)
        // No route of the platform reads text, which forms of other sites can send.
        scope.removeContentTypeParser('text/plain')
        if (isRetried) retryWhenStale(scope as App, deps.catalog)
        await register(scope as App, deps)
      }),
    )
  registerEndpoints(app, deps, endpoints, { taken, limits })
}

/** For the name of one without, Fastify looks through all modules that are loaded: that was two fifths of making a server. */
function named<Plugin extends object>(name: string, plugin: Plugin): Plugin {
  return Object.assign(plugin, { [Symbol.for('fastify.display-name')]: name })
}

/** Lets the routes that are declared next run again where another process has changed a collection under them. */
function retryWhenStale(app: App, catalog: CatalogStore): void {
  app.addHook('onRoute', (route) => {
    const { handler } = route
    route.handler = function retried(request, reply) {
      return withFreshCatalog(catalog, () => handler.call(this, request, reply) as Promise<unknown>)
    }
  })
}
