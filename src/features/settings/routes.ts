import type { TProperties } from 'typebox'
import { Type } from '../../adapters/typebox.ts'
import type { Reads } from '../../db/pools.ts'
import { AppError } from '../../errors.ts'
import type { Writes } from '../../events/commit.ts'
import { type App, actorOf } from '../../http/http.ts'
import { routesOf } from '../../http/route.ts'
import { Count, Id, Moment, NullableId, NullableText, OneOf, Said, Text } from '../../http/shapes.ts'
import {
  administratorSettings,
  brandingOf,
  type CurrentSettings,
  deleteSettings,
  imageNames,
  imagesOf,
  kindOf,
  noSettings,
  publicSettings,
  settingKinds,
  settingsKeys,
  TenantQuery,
  tenantOf,
  updateSettings,
} from './settings.ts'

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

const declared = routesOf('Settings')

const isRequired = 'tenant_id query parameter is required'
const NamedTenantQuery = Type.Object({
  tenant_id: Id({
    minLength: 1,
    refusal: { required: isRequired, minLength: isRequired, type: isRequired, otherwise: noSettings },
  }),
})

const AppUrlQuery = Type.Object({
  app_url: Type.String({
    minLength: 1,
    examples: ['https://app.example.com'],
    refusal: 'app_url query parameter is required',
  }),
})

const valuesOf = (isShown: (key: { readonly isPublic: boolean }) => boolean): TProperties =>
  Object.fromEntries(
    [...settingsKeys]
      .filter(([, key]) => isShown(key))
      .map(([name, { shape, expected }]) => [
        name,
        Type.Optional(Type.Union([shape, Type.Null()], { description: `${expected}; null for none` })),
      ]),
  )

/** A file that the settings show. */
const Image = Type.Object(
  {
    id: Id(),
    title: NullableText('Logo'),
    description: NullableText('In white, for dark pages'),
    filename: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44-logo.png'),
    originalFilename: Text('logo.png'),
    type: Text('image/png'),
    size: Count(4096),
    width: Type.Union([Count(320), Type.Null()]),
    height: Type.Union([Count(80), Type.Null()]),
    isPublic: Type.Boolean({ examples: [true] }),
    createdAt: Moment(),
    updatedAt: Moment(),
  },
  { description: 'The file of the name; null for none. Its content is at `/assets/` and the name.' },
)

const Derived = Type.Object({
  id: Type.Union([Count(1), Type.Null()]),
  tenant_Id: NullableId(),
  createdAt: Moment(),
  updatedAt: Moment(),
  web_session_limit: Type.Integer({ examples: [-1], description: '-1 for no limit' }),
  mobile_session_limit: Type.Integer({ examples: [-1], description: '-1 for no limit' }),
  ...Object.fromEntries(imageNames.map((name) => [name, Type.Union([Image, Type.Null()])])),
}).properties

const PublicSettings = Type.Object({
  ...Derived,
  ...valuesOf(({ isPublic }) => isPublic),
  session_limits: Type.Unknown({ examples: [{ web: -1, mobile: -1 }], description: 'Those of most users.' }),
})
const AllSettings = Type.Object({ ...Derived, ...valuesOf(() => true) })

/** Settings that may be set; what only the server says is left out. */
const ChangeShape = Type.Object(
  { ...Type.Partial(Type.Object(Derived)).properties, ...valuesOf(() => true) },
  { examples: [{ project_name: 'Acme', project_color: '#663399', smtp_enabled: false }] },
)

const readRoute = declared({
  summary: 'Read the settings',
  scope: 'none',
  description: 'Administrators see all of them, everybody else those that are public.',
  query: TenantQuery,
  response: { 200: Type.Object({ data: Type.Union([PublicSettings, AllSettings]) }) },
  sendsText: true,
})

const byAppUrlRoute = declared({
  summary: 'Find the public settings of an app by its address',
  scope: 'none',
  query: AppUrlQuery,
  response: { 200: Type.Object({ data: PublicSettings }) },
  sendsText: true,
})

const brandingRoute = declared({
  summary: 'Read what the mails of a tenant look like',
  scope: 'none',
  query: NamedTenantQuery,
  response: {
    200: Type.Object({
      data: Type.Object(valuesNamed('project_name', 'project_color', 'email_icon_Id', 'email_signature')),
    }),
  },
  sendsText: true,
})

const changeRoute = declared(
  {
    summary: 'Change settings',
    scope: 'admin',
    query: TenantQuery,
    body: ChangeShape,
    response: { 200: Type.Object({ data: AllSettings }) },
    // All problems are answered together.
    readElsewhere: 'body',
    sendsText: true,
  },
  { config: { failureMessage: 'Settings update failed' } },
)

const keysRoute = declared({
  summary: 'List what may be set',
  scope: 'admin',
  description: 'For forms: each key with what its value must be.',
  response: {
    200: Type.Object({
      data: Type.Array(
        Type.Object({
          name: Text('project_color'),
          expected: Text('a colour such as #663399'),
          kind: OneOf(settingKinds, { description: 'How it is typed.' }),
          isPublic: Type.Boolean({ description: 'Everybody may read it.' }),
        }),
      ),
    }),
  },
})

const reloadRoute = declared({
  summary: 'Read the settings from the database anew',
  scope: 'admin',
  query: TenantQuery,
  response: { 200: Said('Global settings reloaded successfully') },
})

const removeRoute = declared({
  summary: 'Delete the settings of a tenant',
  scope: 'admin',
  description: 'Those of the installation hold for it again.',
  query: NamedTenantQuery,
  response: { 200: Said('Tenant settings deleted successfully') },
})

function valuesNamed(...names: readonly string[]): TProperties {
  const values = valuesOf(() => true)
  return Object.fromEntries(names.map((name) => [name, values[name]!]))
}
