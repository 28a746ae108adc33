import { Type } from '../../../adapters/typebox.ts'
import type { Configuration } from '../../../config/config.ts'
import type { App } from '../../../http/http.ts'
import { route } from '../../../http/route.ts'
import { Anything, NullableId, NullableText, Text } from '../../../http/shapes.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import { TenantQuery, tenantOf } from '../../settings/settings.ts'
import { projectInfo } from './project-info.ts'

/** GET and POST /: what a frontend needs before anybody signs in; with `?tenant_id=` that of the tenant. */
export function projectInfoRoutes(app: App, rt: Configuration & CurrentSettings): void {
  app.route({
    ...infoRoute,
    method: ['GET', 'POST'],
    url: '/',
    handler: async (request) => projectInfo(rt, tenantOf(request.query)),
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
