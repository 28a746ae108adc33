import type { Static } from 'typebox'
import { Type } from '../../../adapters/typebox.ts'
import { Filled, Text } from '../../../http/shapes.ts'
import { SignedInShape, SignIn } from '../auth/auth.ts'

const Scopes = Type.Optional(
  Type.Union([Type.Array(Text('calendar.read')), Text('calendar.read')], {
    description: 'Scopes to ask for besides: a list, or a text with commas.',
    refusal: 'Invalid scopes',
  }),
)

const badIdToken = { status: 401, message: 'Invalid ID token' }
const Part = (example: string) => Type.Optional(Text(example))

/** Begins a sign-in, or ends one with an ID token that the app got from the provider itself. */
export const SocialBody = Type.Object(
  {
    ...SignIn,
    provider: Filled('google', { refusal: 'Provider is required' }),
    callbackURL: Type.Optional(Text('https://app.example.com/callback', { refusal: 'Invalid callbackURL' })),
    errorCallbackURL: Type.Optional(Text('https://app.example.com/sorry', { refusal: 'Invalid errorCallbackURL' })),
    scopes: Scopes,
    idToken: Type.Optional(
      Type.Object(
        {
          token: Part('eyJhbGciOiJSUzI1NiJ9'),
          nonce: Part('n-0S6'),
          accessToken: Part('ya29'),
          refreshToken: Part('1//0'),
        },
        { refusal: badIdToken },
      ),
    ),
  },
  { examples: [{ provider: 'google', callbackURL: 'https://app.example.com/callback' }] },
)

export const SocialLinkQuery = Type.Object({
  ...SignIn,
  redirect_url: Type.Optional(Text('https://app.example.com/welcome', { refusal: 'Invalid or missing redirect_url' })),
  scopes: Scopes,
})

/** A parameter that says something, or is none. */
const Said = (example: string, description?: string) =>
  Type.Optional(Type.String({ minLength: 1, examples: [example], lenient: true, ...(description && { description }) }))

/** The parameters that a provider sends the browser back with; some have more. */
export const CallbackShape = Type.Object(
  {
    state: Said('5f1d7a84db00d2fc'),
    code: Said('4/0AX4XfWh'),
    error: Said('access_denied'),
    error_description: Said('The user has refused'),
    iss: Said('https://accounts.google.com', 'The issuer, by RFC 9207.'),
    device_id: Said('dev-1', 'Of VK ID.'),
    user: Said('{"name":{"firstName":"Ada","lastName":"Lovelace"}}', 'Of Apple, once: the name.'),
  },
  { additionalProperties: true, examples: [{ state: '5f1d7a84db00d2fc', code: '4/0AX4XfWh' }] },
)

export type Callback = Static<typeof CallbackShape>

/** Where to send the browser; or, for an ID token, the answer of signing in. */
export const StartedShape = Type.Object({
  redirect: Type.Boolean(),
  url: Type.Optional(Text('https://accounts.google.com/o/oauth2/v2/auth?client_id=1')),
  ...SignedInShape.properties,
})
