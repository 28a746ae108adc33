import packageJson from '../../../../package.json' with { type: 'json' }
import { Type } from '../../../adapters/typebox.ts'
import type { Configuration } from '../../../config/config.ts'
import type { App } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Anything, NullableId, NullableText, Text } from '../../../http/shapes.ts'
import { senderOf } from '../../messaging/mail/mail.ts'
import { type CurrentSettings, type SettingsRow, TenantQuery, tenantOf } from '../../settings/settings.ts'

/** GET and POST /: what a frontend needs before anybody signs in; with `?tenant_id=` that of the tenant. */
export function projectInfoRoutes(app: App, deps: Configuration & CurrentSettings): void {
  app.route({
    ...infoRoute,
    method: ['GET', 'POST'],
    url: '/',
    handler: async (request) => projectInfo(deps, tenantOf(request.query)),
  })
}

const WaysToSignIn = Type.Object({
  registration: Type.Boolean(),
  emailPassword: Type.Boolean(),
  magicLink: Type.Boolean(),
  passkey: Type.Boolean(),
  twoFactor: Type.Boolean(),
  socialProviders: Type.Array(Text('google')),
})

const InfoShape = Type.Object({
  data: Type.Object({
    project_name: NullableText('Acme'),
    title: NullableText('Acme shop'),
    project_color: NullableText('#663399'),
    secondary_color: NullableText('#336699'),
    description: NullableText('Everything for the coyote'),
    project_url: NullableText('https://api.example.com'),
    app_url: NullableText('https://app.example.com'),
    auth: WaysToSignIn,
  }),
  project: Type.Object(
    {
      name: NullableText('Acme'),
      title: NullableText('Acme shop'),
      url: NullableText('https://api.example.com'),
      app_url: NullableText('https://app.example.com'),
      color: NullableText('#663399'),
      secondary_color: NullableText('#336699'),
      description: NullableText('Everything for the coyote'),
      keywords: NullableText('rockets, anvils'),
      branding: Type.Object({
        'logo-light': NullableId(),
        'logo-dark': NullableId(),
        'logo-full': NullableId(),
        'logo-transparent': NullableId(),
        favicon: NullableId(),
        icon: NullableId(),
        'email-icon': NullableId(),
      }),
      localization: Type.Object({
        timezone: NullableText('Europe/Zurich'),
        language: NullableText('en'),
        date_format: NullableText('YYYY-MM-DD'),
        currency: NullableText('CHF'),
      }),
      smtp_enabled: Type.Boolean(),
      multitenant: Type.Boolean(),
      metadata: Anything(null),
      modules: Anything(null),
      auth: WaysToSignIn,
    },
    { description: 'The same as older clients read it.' },
  ),
  version: Text('0.1.0'),
})

const infoRoute = route(
  {
    summary: 'Read what a frontend needs before anybody signs in',
    tag: 'Settings',
    scope: 'none',
    query: TenantQuery,
    response: { 200: InfoShape },
  },
  { bodyLimit: 16_384 },
)

/**
 * Public project information and enabled ways to sign in, of the installation or a tenant. Answered twice: as `data`, and
 * as the `project` and `version` that older clients read. No secret, no client id.
 */
function projectInfo(deps: Configuration & CurrentSettings, tenantId: string | undefined) {
  const { config } = deps
  const settings = deps.settings.current(tenantId)
  const auth = {
    registration: config.auth.publicRegistration && config.auth.local,
    emailPassword: config.auth.local,
    magicLink: config.auth.local && senderOf(deps, tenantId) !== undefined,
    passkey: config.passkey !== undefined,
    twoFactor: config.auth.twoFactor,
    socialProviders: Object.keys(config.oauth.providers),
  }
  const data = {
    project_name: text(settings, 'project_name'),
    title: text(settings, 'title'),
    project_color: text(settings, 'project_color'),
    secondary_color: text(settings, 'secondary_color'),
    description: text(settings, 'description'),
    project_url: text(settings, 'project_url') ?? config.server.baseUrl ?? null,
    app_url: text(settings, 'app_url') ?? config.auth.appUrls[0] ?? null,
    auth,
  }
  const project = {
    name: data.project_name,
    title: data.title,
    url: data.project_url,
    app_url: data.app_url,
    color: data.project_color,
    secondary_color: data.secondary_color,
    description: data.description,
    keywords: text(settings, 'keywords'),
    branding: {
      'logo-light': text(settings, 'project_logo_light_Id'),
      'logo-dark': text(settings, 'project_logo_dark_Id'),
      'logo-full': text(settings, 'project_logo_full_Id'),
      'logo-transparent': text(settings, 'project_logo_transparent_Id'),
      favicon: text(settings, 'project_favicon_Id'),
      icon: text(settings, 'project_icon_Id'),
      'email-icon': text(settings, 'email_icon_Id'),
    },
    localization: {
      timezone: text(settings, 'timezone'),
      language: text(settings, 'language'),
      date_format: text(settings, 'date_format'),
      currency: text(settings, 'currency'),
    },
    smtp_enabled: settings.smtp_enabled === true,
    multitenant: config.tenancy.enabled,
    metadata: settings.metadata ?? null,
    modules: settings.modules ?? null,
    auth,
  }
  return { data, project, version: packageJson.version }
}

function text(settings: SettingsRow, key: string): string | null {
  const value = settings[key]
  return typeof value === 'string' ? value : null
}
