import type { FastifyError, FastifyRequest } from 'fastify'
import { identified } from '../../../access/principal.ts'
import { turnAwayFromHash } from '../../../adapters/passwords.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { Configuration } from '../../../config/config.ts'
import { issuerOf } from '../../../config/issuer.ts'
import { AppError, errors } from '../../../errors.ts'
import { type App, acceptForms, turnOf } from '../../../http/http.ts'
import { type Declaration, type DeclaredOptions, route } from '../../../http/route.ts'
import { Anything, Count, Filled, Id, OAuthError, Text } from '../../../http/shapes.ts'
import { prepare } from '../auth/auth.ts'
import {
  authorize,
  comeBack,
  decide,
  mailCode,
  type OAuthWrites,
  showProblem,
  signInByCode,
  signInByPassword,
  signInBySecondFactor,
  signInElsewhere,
  signOut,
} from './authorize.ts'
import { ClientMetadata, registerClient } from './clients.ts'
import { oauthError, redeemCode, refreshGrant, revoke, userClaims } from './grants.ts'
import { pageFiles, sendPageFile } from './pages.ts'
import {
  isIssuerPath,
  publicKeys,
  resourceAt,
  resourceMetadata,
  resourcesOf,
  serverMetadata,
  supportedScopes,
} from './protocol.ts'

/*
 * The OAuth server (docs/oauth.md). None of it is there where it is off.
 */

/** The claims of an ID token, for the holder of its access token. */
export function userInfoRoutes(app: App, deps: OAuthWrites): void {
  if (issuerOf(deps.config) === undefined) return
  prepare(app)
  const answer = (request: FastifyRequest) => {
    const { userId, client } = identified(request.caller)
    if (client !== undefined && !client.scopes.includes('openid')) throw errors.insufficientScope('openid')
    return userClaims(deps, userId, client?.scopes ?? supportedScopes)
  }
  letPagesAsk(app, '/oauth/userinfo')
  app.get('/oauth/userinfo', userInfoRoute, answer)
  app.post('/oauth/userinfo', userInfoRoute, answer)
}

/** The metadata that programs read before they ask for anything. */
export function oauthMetadataRoutes(app: App, deps: Configuration): void {
  const { config } = deps
  if (issuerOf(config) === undefined) return
  const notFound = () => new AppError(404, 'Not found')
  const pathOf = ({ params }: FastifyRequest) => {
    const { '*': rest = '' } = params as { '*'?: string }
    return rest === '' ? '' : `/${rest}`
  }
  for (const name of ['oauth-authorization-server', 'openid-configuration'])
    for (const path of [`/.well-known/${name}`, `/.well-known/${name}/*`]) {
      letPagesAsk(app, path)
      app.get(path, serverMetadataRoute, async (request, reply) => {
        if (!isIssuerPath(config, pathOf(request))) throw notFound()
        return reply.header('cache-control', publicly).send(serverMetadata(config))
      })
    }
  for (const path of ['/.well-known/oauth-protected-resource', '/.well-known/oauth-protected-resource/*']) {
    letPagesAsk(app, path)
    app.get(path, resourceMetadataRoute, async (request, reply) => {
      const name = resourceAt(config, pathOf(request))
      if (name === undefined) throw notFound()
      return reply.header('cache-control', publicly).send(resourceMetadata(config, name))
    })
  }
  letPagesAsk(app, '/oauth/jwks')
  app.get('/oauth/jwks', keysRoute, async (_request, reply) =>
    reply.header('cache-control', publicly).send(await publicKeys(config)),
  )
}

const publicly = 'public, max-age=300'

/** The pages; refusals are pages, too. They emit oauth.authorized, and what signing in emits. */
export function oauthPageRoutes(app: App, deps: OAuthWrites): void {
  if (issuerOf(deps.config) === undefined) return
  prepare(app)
  acceptForms(app)
  app.setErrorHandler((error: FastifyError | AppError, _request, reply) => {
    const refusal = refusalOf(error)
    if (refusal === undefined) throw error
    return showProblem(deps, reply, refusal)
  })
  app.get('/oauth/authorize', authorizeRoute, (request, reply) =>
    authorize({ deps, request, reply, query: queryOf(request) }),
  )
  app.post('/oauth/consent', consentRoute, (request, reply) => {
    const { request: query, ticket, decision } = request.body
    return decide({ deps, request, reply, query }, ticket, decision === 'allow')
  })
  app.post('/oauth/sign-in', signInRoute, (request, reply) =>
    signInByPassword({ deps, request, reply, query: request.body.request }, request.body),
  )
  app.get('/oauth/sign-in', cameBackRoute, (request, reply) =>
    comeBack({ deps, request, reply, query: request.query.request }, request.query),
  )
  app.post('/oauth/sign-in-mail', mailRoute, (request, reply) =>
    mailCode({ deps, request, reply, query: request.body.request }, request.body.email),
  )
  app.post('/oauth/sign-in-code', codeRoute, (request, reply) =>
    signInByCode({ deps, request, reply, query: request.body.request }, request.body.email, request.body.code),
  )
  app.post('/oauth/sign-in-second-factor', secondFactorRoute, (request, reply) => {
    const { request: query, twoFactorToken, code } = request.body
    return signInBySecondFactor({ deps, request, reply, query }, twoFactorToken, code)
  })
  app.get('/oauth/sign-in-social', socialRoute, (request, reply) =>
    signInElsewhere({ deps, request, reply, query: request.query.request }, request.query.provider),
  )
  app.post('/oauth/sign-out', signOutRoute, (request, reply) =>
    signOut({ deps, request, reply, query: request.body.request }),
  )
  for (const name of pageFiles)
    app.get(`/oauth/${name}`, fileRoute(name), (_request, reply) => sendPageFile(reply, name))
}

/** As it was sent: the same text is compared and shown later. */
const queryOf = ({ raw }: FastifyRequest): string => raw.url?.split('?', 2)[1] ?? ''

/** Faults of ours are answered as everywhere. */
function refusalOf(error: FastifyError | AppError): AppError | undefined {
  if (error instanceof AppError) return error
  const { statusCode = 500, message } = error
  return statusCode < 500 ? new AppError(statusCode, message, { cause: error }) : undefined
}

/**
 * Calls of programs, without a browser; cookies have no effect. They emit oauth.signed_in, oauth.refreshed,
 * oauth.revoked, oauth.reuse_detected and oauth.client_registered.
 */
export function oauthTokenRoutes(app: App, deps: OAuthWrites): void {
  if (issuerOf(deps.config) === undefined) return
  prepare(app)
  acceptForms(app)
  letPagesAsk(app, '/oauth/token')
  letPagesAsk(app, '/oauth/revoke')
  app.post('/oauth/token', tokenRoute, async (request, reply) => {
    const { grant_type: type, client_id: clientId, resource, scope } = request.body
    if (clientId === undefined) throw noClient()
    const resources = resource === undefined ? undefined : resourcesOf(deps.config, [resource])
    if (resource !== undefined && resources === undefined)
      throw oauthError('INVALID_TARGET', 'The resource is none of this server')
    const {
      code = '',
      code_verifier: verifier = '',
      redirect_uri: redirectUri,
      refresh_token: token = '',
    } = request.body
    reply.header('pragma', 'no-cache')
    if (type === 'authorization_code')
      return redeemCode(deps, request, { code, clientId, redirectUri, verifier, resources })
    if (type !== 'refresh_token')
      throw oauthError('UNSUPPORTED_GRANT_TYPE', 'The grant_type must be authorization_code or refresh_token')
    const scopes = scope?.split(' ').filter((one) => one !== '')
    return refreshGrant(deps, request, { token, clientId, scopes, resources })
  })
  app.post('/oauth/revoke', revokeRoute, async (request) => {
    const { token, client_id: clientId } = request.body
    if (clientId === undefined) throw noClient()
    await revoke(deps, request, token, clientId)
    return {}
  })
  if (!deps.config.oauthServer.registration) return
  letPagesAsk(app, '/oauth/register')
  app.post('/oauth/register', registerRoute, async (request, reply) =>
    reply.code(201).send(await registerClient(deps, request, request.body)),
  )
}

/**
 * Programs that run in pages of any origin begin here, before anybody could have named their origin. Cookies stay behind, so a
 * page learns and does no more than its own server could.
 */
const forEveryPage = { cors: { origin: '*', credentials: false } } as const

/** Answers a browser that asks whether a page may call a route. */
function letPagesAsk(app: App, path: string): void {
  app.options(path, { config: forEveryPage }, (_request, reply) => reply.callNotFound())
}

const noClient = () => new AppError(401, 'The client_id is missing', { code: 'INVALID_CLIENT' })

/* Declarations. */

const own = { tag: 'OAuth', scope: 'none' } as const
const small = { bodyLimit: 16_384 }
const ignoring = { ...small, config: { ...forEveryPage, ignoresSession: true, ownAuthorization: true } }

type PageDeclaration = Omit<Declaration, 'tag' | 'scope' | 'response'> & { readonly readElsewhere?: 'all' }

/** A page says what is wrong, too; what it sends itself is answered as everywhere where it cannot be read. */
const RefusalPage = Type.Unknown({
  content: { 'text/html': { schema: Text('<!doctype html>') }, 'application/json': { schema: OAuthError } },
})

const page = <const D extends PageDeclaration>(declaration: D, options: DeclaredOptions = {}) =>
  route(
    {
      ...own,
      ...declaration,
      response: {
        200: Text('<!doctype html>', { contentMediaType: 'text/html' }),
        302: Type.Null({ description: 'To the program, with what is wrong, or to a provider.' }),
        303: Type.Null({ description: 'Back to the question.' }),
        400: RefusalPage,
        401: RefusalPage,
        403: RefusalPage,
      },
      sendsText: true,
      errors: 'oauth',
    },
    { ...small, exposeHeadRoute: false, ...options },
  )

const Query = Text('response_type=code&client_id=…', { description: 'The query of the request to `authorize`.' })
const email = Filled('ada@example.com', { refusal: 'Email is required' })
const code = Filled('123456', { refusal: 'The code is required' })
const optional = (example: string, description?: string) =>
  Type.Optional(Text(example, { ...(description && { description }) }))

const authorizeRoute = page({
  summary: 'Ask a user whether a program may act for them',
  description: 'A page: sign-in, then the question. The parameters are those of RFC 6749, 7636 and 8707.',
  query: Type.Object(
    {
      response_type: optional('code'),
      client_id: optional('https://app.example.com/client.json'),
      redirect_uri: optional('https://app.example.com/callback'),
      code_challenge: optional('E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM'),
      code_challenge_method: optional('S256'),
      scope: optional('read openid'),
      resource: optional('https://api.example.com'),
      state: optional('af0ifjsldkj'),
      nonce: optional('n-0S6_WzA2Mj', 'Comes back in the ID token.'),
      prompt: optional('login', '`none`, `login`, `consent`, `select_account`.'),
      max_age: optional('3600'),
      login_hint: optional('ada@example.com'),
    },
    { additionalProperties: true },
  ),
  readElsewhere: 'all',
})
const consentRoute = page({
  summary: 'Decide whether a program may act for you',
  body: Type.Object({ request: Query, ticket: Text('5f1d7a84db00d2fc'), decision: Text('allow') }),
})
const signInRoute = page(
  {
    summary: 'Sign in on the page, with a password',
    body: Type.Object({
      request: Query,
      email,
      password: Filled('correct horse battery', { refusal: 'Password is required' }),
    }),
  },
  { onRequest: async (request: FastifyRequest) => turnAwayFromHash(turnOf(request)) },
)
const cameBackRoute = page({
  summary: 'Go on after signing in at a provider',
  query: Type.Object({
    request: Query,
    twoFactorToken: optional('0f3a5d1f0c2b7e44'),
    error: optional('access_denied'),
  }),
})
const mailRoute = page({ summary: 'Have a code mailed from the page', body: Type.Object({ request: Query, email }) })
const codeRoute = page({
  summary: 'Sign in on the page, with a mailed code',
  body: Type.Object({ request: Query, email, code }),
})
const secondFactorRoute = page({
  summary: 'Sign in on the page, with the second factor',
  body: Type.Object({ request: Query, twoFactorToken: Filled('0f3a5d1f0c2b7e44'), code }),
})
const socialRoute = page({
  summary: 'Sign in at a provider, from the page',
  query: Type.Object({ request: Query, provider: Text('google') }),
})
const signOutRoute = page({
  summary: 'Sign out on the page, to use another account',
  body: Type.Object({ request: Query }),
})
const fileRoute = (name: string) =>
  route({
    ...own,
    summary: `Read ${name} of the pages`,
    response: { 200: Text('(a file)', { contentMediaType: name.endsWith('.css') ? 'text/css' : 'text/javascript' }) },
    sendsText: true,
  })

const TokenAnswer = Type.Object({
  access_token: Text('eyJhbGciOiJIUzI1NiJ9.e30.ZRrHA1JJJW8opsbCGfG_HACGpVUMN_a9IV7pAx_Zmeo'),
  token_type: Type.Literal('Bearer'),
  expires_in: Count(900, { description: 'Seconds.' }),
  scope: Text('read openid'),
  refresh_token: optional('dbr_0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44.1.5f1d7a84', 'Works once.'),
  id_token: optional('eyJhbGciOiJFZERTQSJ9.e30.c2ln', 'With the scope `openid`.'),
})
const tokenRoute = route(
  {
    ...own,
    summary: 'Get the tokens of a program',
    description: 'For a code, with its verifier, or for a refresh token. A form, as RFC 6749 has it.',
    body: Type.Object({
      grant_type: Text('authorization_code', {
        refusal: { status: 400, message: 'The grant_type is missing', code: 'INVALID_REQUEST' },
      }),
      client_id: optional('https://app.example.com/client.json'),
      code: optional('5f1d7a84db00d2fc'),
      code_verifier: optional('dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk'),
      redirect_uri: optional('https://app.example.com/callback'),
      refresh_token: optional('dbr_0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44.1.5f1d7a84'),
      scope: optional('read', 'Of a refresh: no more than was allowed.'),
      resource: optional('https://api.example.com'),
    }),
    response: { 200: TokenAnswer },
    errors: 'oauth',
  },
  ignoring,
)
const revokeRoute = route(
  {
    ...own,
    summary: 'Give the access of a program back',
    body: Type.Object({
      token: Filled('dbr_0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44.1.5f1d7a84'),
      client_id: optional('https://app.example.com/client.json'),
      token_type_hint: optional('refresh_token'),
    }),
    response: { 200: Type.Object({}, { description: 'Also for a token that is none.' }) },
    errors: 'oauth',
  },
  ignoring,
)
const registerRoute = route(
  {
    ...own,
    summary: 'Register a program',
    description: 'RFC 7591. The same metadata are the same client. Nobody has to keep a secret.',
    body: ClientMetadata,
    response: {
      201: Type.Object({
        client_id: Text('dbc_47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU'),
        client_id_issued_at: Count(1_773_480_413),
        client_name: Text('Example app'),
        client_uri: optional('https://app.example.com'),
        redirect_uris: Type.Array(Text('https://app.example.com/callback')),
        grant_types: Type.Array(Text('authorization_code')),
        response_types: Type.Array(Text('code')),
        token_endpoint_auth_method: Type.Literal('none'),
      }),
    },
    errors: 'oauth',
  },
  ignoring,
)
const userInfoRoute = route(
  {
    ...own,
    summary: 'Read who the user of a token is',
    description: 'OpenID Connect Core §5.3. Needs the scope `openid`; `profile` and `email` tell more.',
    response: {
      200: Type.Object({
        sub: Id(),
        name: optional('Ada Lovelace'),
        given_name: optional('Ada'),
        family_name: optional('Lovelace'),
        email: optional('ada@example.com'),
        email_verified: Type.Optional(Type.Boolean()),
      }),
    },
  },
  { config: forEveryPage },
)
const serverMetadataRoute = route(
  {
    ...own,
    summary: 'Read about the OAuth server',
    description: 'RFC 8414 and OpenID Connect Discovery.',
    response: { 200: Type.Object({ issuer: Text('https://api.example.com') }, { additionalProperties: true }) },
  },
  { config: forEveryPage },
)
const resourceMetadataRoute = route(
  {
    ...own,
    summary: 'Read what tokens are needed, and where to get them',
    description: 'RFC 9728.',
    response: { 200: Type.Object({ resource: Text('https://api.example.com') }, { additionalProperties: true }) },
  },
  { config: forEveryPage },
)
const keysRoute = route(
  {
    ...own,
    summary: 'Read the keys that sign ID tokens',
    response: { 200: Type.Object({ keys: Type.Array(Anything({ kty: 'RSA', alg: 'RS256', e: 'AQAB' })) }) },
  },
  { config: forEveryPage },
)
