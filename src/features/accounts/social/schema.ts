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

/** The parameters that a provider sends the browser back with; some have more. */
export const CallbackShape = Type.Object(
  {
    state: Type.Optional(Text('5f1d7a84db00d2fc')),
    code: Type.Optional(Text('4/0AX4XfWh')),
    error: Type.Optional(Text('access_denied')),
    error_description: Type.Optional(Text('The user has refused')),
  },
  { additionalProperties: true, examples: [{ state: '5f1d7a84db00d2fc', code: '4/0AX4XfWh' }] },
)

/** Where to send the browser; or, for an ID token, the answer of signing in. */
export const StartedShape = Type.Object({
  redirect: Type.Boolean(),
  url: Type.Optional(Text('https://accounts.google.com/o/oauth2/v2/auth?client_id=1')),
  ...SignedInShape.properties,
})
