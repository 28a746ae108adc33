import { createHash } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { fetchUrl, UrlFetchError } from '../../../adapters/fetch-url.ts'
import { type IdTokenAlgorithm, idTokenAlgorithms } from '../../../adapters/id-tokens.ts'
import { clientNetwork } from '../../../adapters/network-addresses.ts'
import { fits, Type } from '../../../adapters/typebox.ts'
import type { Configuration } from '../../../config/config.ts'
import { isLoopback } from '../../../config/issuer.ts'
import { type Reads, type ReservedReads, withoutWaiting } from '../../../db/pools.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { Text } from '../../../http/shapes.ts'
import { oncePer } from '../../../language/once.ts'
import { countClients, lockRegistrations, readClient, type StoredMetadata, upsertClient } from './queries.ts'

/** A program that users may sign in to. All are public ones: what they have to show is PKCE, and where they are answered. */
export type Client = {
  readonly id: string
  /** The name that it gives itself. */
  readonly name: string
  /** The host of its metadata document, which vouches for the name; undefined for one that registered itself. */
  readonly host: string | undefined
  readonly redirectUris: readonly string[]
  /** Whether it asked for refresh tokens. */
  readonly refreshes: boolean
  /** The algorithm that signs its ID tokens. */
  readonly idTokenAlgorithm: IdTokenAlgorithm
}

/** A program's metadata (RFC 7591 §2): the members that have an effect. Others are ignored. */
export const ClientMetadata = Type.Object(
  {
    redirect_uris: Type.Array(Text('https://app.example.com/callback', { maxLength: 2048 }), {
      minItems: 1,
      maxItems: 20,
    }),
    client_name: Type.Optional(Text('Example app', { maxLength: 200 })),
    client_uri: Type.Optional(Text('https://app.example.com', { maxLength: 2048 })),
    grant_types: Type.Optional(Type.Array(Text('authorization_code'), { maxItems: 10 })),
    response_types: Type.Optional(Type.Array(Text('code'), { maxItems: 10 })),
    token_endpoint_auth_method: Type.Optional(
      Text('none', { description: 'Always `none`, whatever the request says.' }),
    ),
    application_type: Type.Optional(Text('web')),
    id_token_signed_response_alg: Type.Optional(
      Text('RS256', { description: 'The algorithm of its ID tokens: `RS256` (the default) or `EdDSA`.' }),
    ),
  },
  { additionalProperties: true },
)
export type ClientMetadata = Static<typeof ClientMetadata>

/**
 * The client of an id: the one that a metadata document at that https address describes, or one that has registered.
 * Undefined for an unknown one. 400 for a document that cannot be had or does not hold.
 */
export function findClient(deps: ClientReads, clientId: string): Promise<Client | undefined> {
  if (clientId.startsWith('https://')) return documented(deps, clientId)
  return /^dbc_[\w-]{43}$/.test(clientId) ? registered(deps, clientId) : Promise.resolve(undefined)
}

async function registered(deps: Reads & ReservedReads, clientId: string): Promise<Client | undefined> {
  const metadata = await readClient(withoutWaiting(deps), clientId)
  return metadata && { ...clientOf(clientId, metadata), host: undefined }
}

const DocumentShape = Type.Object(
  { ...ClientMetadata.properties, client_id: Type.String() },
  { additionalProperties: true },
)

/** Limits of a client's metadata document. */
const document = { timeoutMs: 3000, maxBytes: 5120 }
/** How long a document is believed without being read again. */
const believedForMs = 300_000
const documentsAtMost = 1000

type RememberedClient = { readonly client: Promise<Client>; readonly until: number }

const documents = oncePer((_config: object) => new Map<string, RememberedClient>())

/** Asked for once by all who come at the same time; what fails is asked for again. */
function documented(deps: Configuration, clientId: string): Promise<Client> {
  const known = documents(deps.config)
  const before = known.get(clientId)
  if (before !== undefined && before.until > performance.now()) return before.client
  const client = readDocument(deps, clientId)
  known.delete(clientId)
  known.set(clientId, { client, until: performance.now() + believedForMs })
  if (known.size > documentsAtMost) known.delete(known.keys().next().value!)
  client.catch(() => known.delete(clientId))
  return client
}

async function readDocument({ config }: Configuration, clientId: string): Promise<Client> {
  const url = URL.parse(clientId)
  // One spelling is one client: what the parser would change is none.
  if (url === null || url.href !== clientId || url.pathname === '/' || url.hash !== '' || clientId.length > 1024)
    throw badDocument('its address is not an https address with a path')
  const value = await fetchDocument(clientId, config.files.allowPrivateUrlFetch)
  if (!fits(DocumentShape, value)) throw badDocument('it lacks redirect_uris, or a member has the wrong form')
  const metadata = value as Static<typeof DocumentShape>
  const { client_id: id, token_endpoint_auth_method: method = 'none' } = metadata
  if (id !== clientId) throw badDocument('its client_id is not its address')
  if (method !== 'none')
    throw badDocument(`it wants to prove itself by ${String(method).slice(0, 40)}, and only none is supported`)
  const problem = problemOf(metadata)
  if (problem !== undefined) throw badDocument(problem.message)
  return { ...clientOf(clientId, metadata), host: url.host }
}

async function fetchDocument(address: string, allowPrivate: boolean): Promise<unknown> {
  try {
    const headers = { accept: 'application/json' }
    const { status, body } = await fetchUrl(address, { ...document, allowPrivate, headers })
    if (status !== 200) throw badDocument(`it was answered with status ${status}`)
    return JSON.parse(body.toString('utf8'))
  } catch (error) {
    if (error instanceof UrlFetchError) throw badDocument(error.message, error)
    if (error instanceof SyntaxError) throw badDocument('it is not JSON', error)
    throw error
  }
}

const badDocument = (why: string, cause?: unknown) =>
  new AppError(400, `The metadata document of the program cannot be used: ${why}`, { code: 'INVALID_CLIENT', cause })

/** Programs without a user so far: of one network, and of all. */
const clientsPerNetwork = 20
const clientsAtMost = 10_000
/** Until the first sign-in to it, and since then. */
const unusedForSeconds = 86_400
export const usedForSeconds = 90 * 86_400

/**
 * Registers a program, or finds it again: the same metadata are the same client (RFC 7591 §3).
 *
 * @throws {AppError} 400 for metadata that do not hold; 429 where the network has registered too many; 503 where all have
 */
export async function registerClient(deps: Writes, request: FastifyRequest, metadata: ClientMetadata) {
  const problem = problemOf(metadata)
  if (problem !== undefined) throw problem
  const stored = storedMetadata(metadata)
  const id = `dbc_${createHash('sha256').update(JSON.stringify(stored)).digest('base64url')}`
  const network = clientNetwork(request.ip)
  const expiresAt = await commit(deps, actorOf(request), async (tx) => {
    await lockRegistrations(tx)
    const { ofNetwork, all, isKnown } = await countClients(tx, id, network)
    if (!isKnown && ofNetwork >= clientsPerNetwork) throw tooMany()
    if (!isKnown && all >= clientsAtMost) throw errors.unavailable('Too many programs have registered')
    const result = await upsertClient(tx, { id, metadata: stored, network, seconds: unusedForSeconds })
    const name = stored.client_name
    return { result, events: isKnown ? [] : [{ type: 'oauth.client_registered', data: { clientId: id, name } }] }
  })
  return {
    client_id: id,
    client_id_issued_at: Math.floor(Date.parse(expiresAt.createdAt) / 1000),
    ...stored,
    id_token_signed_response_alg: algorithmOf(stored),
    token_endpoint_auth_method: 'none' as const,
    response_types: ['code'],
  }
}

const tooMany = () =>
  new AppError(429, 'Too many programs were registered from this network. Please try again later.', {
    headers: { 'retry-after': '3600' },
  })

/** The stored members, in one order, because the id is derived from them. */
function storedMetadata(metadata: ClientMetadata): StoredMetadata {
  const { client_name, client_uri, redirect_uris, grant_types = [], id_token_signed_response_alg: alg } = metadata
  const refreshes = grant_types.includes('refresh_token')
  return {
    client_name: nameOf(client_name, redirect_uris),
    ...(client_uri !== undefined && isRedirectUri(client_uri) && { client_uri }),
    redirect_uris: [...new Set(redirect_uris)].sort(),
    grant_types: ['authorization_code', ...(refreshes ? ['refresh_token'] : [])],
    // A member with its default value must not make another client.
    ...(alg !== undefined && alg !== idTokenAlgorithms[0] && { id_token_signed_response_alg: alg }),
  }
}

function clientOf(id: string, metadata: ClientMetadata | StoredMetadata): Omit<Client, 'host'> {
  const { client_name, redirect_uris, grant_types = [] } = metadata
  return {
    id,
    name: nameOf(client_name, redirect_uris),
    redirectUris: redirect_uris,
    refreshes: grant_types.includes('refresh_token'),
    idTokenAlgorithm: algorithmOf(metadata),
  }
}

const algorithmOf = ({ id_token_signed_response_alg: named }: Pick<StoredMetadata, 'id_token_signed_response_alg'>) =>
  idTokenAlgorithms.find((algorithm) => algorithm === named) ?? idTokenAlgorithms[0]

/** Of visible characters: nothing may turn the line of a consent page around, or look like two. */
function nameOf(given: string | undefined, [first = '']: readonly string[]): string {
  const name = (given ?? '').replaceAll(/[\p{C}\p{Z}]+/gu, ' ').trim()
  return name === '' ? (URL.parse(first)?.host ?? '') || 'A program' : name.slice(0, 100)
}

function problemOf(metadata: ClientMetadata): AppError | undefined {
  const { redirect_uris, grant_types, response_types, id_token_signed_response_alg: algorithm } = metadata
  const bad = redirect_uris.find((uri) => !isRedirectUri(uri))
  if (bad !== undefined)
    return new AppError(400, `${bad.slice(0, 100)} is no address that a code may be sent to`, {
      code: 'INVALID_REDIRECT_URI',
    })
  const withoutCode = 'must include the authorization code'
  if (grant_types !== undefined && !grant_types.includes('authorization_code'))
    return badMetadata('grant_types', withoutCode)
  if (response_types !== undefined && !response_types.includes('code'))
    return badMetadata('response_types', withoutCode)
  return algorithm === undefined || idTokenAlgorithms.some((known) => known === algorithm)
    ? undefined
    : badMetadata('id_token_signed_response_alg', `must be ${idTokenAlgorithms.join(' or ')}`)
}

const badMetadata = (member: string, problem: string) =>
  new AppError(400, `${member} ${problem}`, { code: 'INVALID_CLIENT_METADATA' })

/** Schemes that a browser acts upon by itself. */
const ownSchemes =
  /^(javascript|data|vbscript|file|blob|about|view-source|filesystem|ftp|ws|wss|mailto|tel|sms|intent|chrome|edge|resource|jar):$/

/** An https address, http on this machine, or a scheme of the program's own (RFC 8252 §7). */
function isRedirectUri(text: string): boolean {
  const url = URL.parse(text)
  // Only what an address is written with: it goes into a header, and is compared letter by letter.
  if (url === null || !/^[\x21-\x7e]+$/.test(text) || /[\\#]/.test(text) || url.username !== '' || url.password !== '')
    return false
  if (url.protocol === 'https:') return true
  return url.protocol === 'http:' ? isLoopback(url.hostname) : !ownSchemes.test(url.protocol)
}

/** Whether a code may be sent there: an address that was registered, letter by letter, but for the port on this machine. */
export function isRegistered({ redirectUris }: Pick<Client, 'redirectUris'>, uri: string): boolean {
  return isRedirectUri(uri) && redirectUris.some((known) => known === uri || withoutPort(known) === withoutPort(uri))
}

/** Only for this machine: a program there cannot know which port it gets (RFC 8252 §7.3). */
function withoutPort(uri: string): string | URL {
  const url = new URL(uri)
  // An object is equal to no other one.
  if (url.protocol !== 'http:' || !isLoopback(url.hostname)) return url
  const [, rest] = /^http:\/\/(?:\[[^\]]*\]|[^/:?]*)(?::\d+)?(.*)$/i.exec(uri)!
  return `${url.hostname} ${rest}`
}

type ClientReads = Reads & ReservedReads & Configuration
