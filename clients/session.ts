import { DaybookError, type Http, pause } from './http.ts'
import { type Life, openRenewal, renewAt } from './renewal.ts'

/** Keeps a text under a name: localStorage, or anything of its form. */
export type KeyValueStore = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>

/**
 * The credential of requests. `token`: an API key or a token of your own. `cookie`: the browser keeps the session where
 * scripts cannot read it. Otherwise the client signs in and keeps the token in `store`: that of the page where there is
 * one, else memory.
 */
export type AuthOptions =
  | { readonly token: string | (() => string | Promise<string>) }
  | { readonly mode: 'cookie' }
  | { readonly mode?: 'token'; readonly store?: KeyValueStore }

export type SignedIn = {
  readonly user: { readonly id: string; readonly email: string } & Readonly<Record<string, unknown>>
  readonly role: { readonly id: string; readonly name: string } & Readonly<Record<string, unknown>>
  readonly permissions: readonly Readonly<Record<string, unknown>>[]
  readonly tenant?: unknown
}

/** What is known of a user whose role may not read users. */
export type OwnIds = { readonly user: { readonly id: string }; readonly tenant?: unknown }

/** Who is signed in. Its row needs a grant that not every role has; its id does not. @throws {DaybookError} */
export async function ownOf(http: Http): Promise<SignedIn | OwnIds> {
  try {
    return await http.ask<SignedIn>('/auth/me')
  } catch (error) {
    if (!(error instanceof DaybookError && error.status === 403)) throw error
    const { user, tenant } = await http.ask<{ user: OwnIds['user']; tenant?: { id: string } | null }>('/auth/check')
    return { user, tenant: tenant?.id ?? null }
  }
}

/** A second factor is asked for: hand `twoFactorToken` and a code to `auth.verifySecondFactor`. */
export type SecondFactorNeeded = { readonly twoFactorRequired: true; readonly twoFactorToken: string }

export type SignInResult = SignedIn | SecondFactorNeeded

/** Whether somebody is signed in, as far as the client knows. */
export type SessionState = 'signed in' | 'signed out'

export type Session = {
  /** Undefined where nobody is signed in, or the browser keeps the session. */
  token(): Promise<string | undefined>
  /** None where nobody is signed in. @throws {DaybookError} `SESSION_ENDED` where the session turns out to be over */
  headers(): Promise<Readonly<Record<string, string>>>
  /** Takes the token of an answer, if it has one, and forgets it in what is given on. */
  take<Body extends object>(body: Body): Body
  forget(): void
  /**
   * A request with these headers was refused with 401: whether another attempt is worth it, because there is a newer
   * token.
   */
  onUnauthorized(asked: Readonly<Record<string, string>>): boolean | Promise<boolean>
  readonly state: SessionState
  /** Called when it changes, in this tab or another one. Gives what ends it. */
  onChange(listener: (state: SessionState) => void): () => void
  readonly authMode: 'jwt' | 'cookie'
  /** The owner of rows kept under this name; undefined if unknown. */
  owner(): Promise<string | undefined>
  close(): void
}

/** How often, and how long after one another, to look for the token that another client has renewed. */
const mostLooks = 5
const lookAgainMs = 400

export function openSession(url: string, auth: AuthOptions, http: () => Http): Session {
  if ('token' in auth) return fixedSession(auth.token)
  if (auth.mode === 'cookie') return cookieSession(`daybook:${url}:user`, http)
  return tokenSession(`daybook:${url}`, auth.store ?? pageStorage(), http)
}

type Listener = (state: SessionState) => void

function listenersOf() {
  const listeners = new Set<Listener>()
  return {
    add(listener: Listener) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    tell(state: SessionState) {
      for (const listener of [...listeners]) listener(state)
    },
  }
}

function fixedSession(token: string | (() => string | Promise<string>)): Session {
  const current = async () => (typeof token === 'string' ? token : await token())
  return {
    token: current,
    headers: async () => bearer(await current()),
    take: (body) => body,
    forget: () => undefined,
    // A function may have a better one by now.
    onUnauthorized: () => typeof token !== 'string',
    state: 'signed in',
    onChange: () => () => undefined,
    authMode: 'jwt',
    owner: async () => ownerOf(await current()),
    close: () => undefined,
  }
}

/** The name under which the page keeps who is signed in, for when the server cannot be asked. */
function cookieSession(name: string, http: () => Http): Session {
  const listeners = listenersOf()
  const store = pageStore()
  let state: SessionState = 'signed out'
  let owner: Promise<string | undefined> | undefined
  const askOwner = async () => {
    try {
      const own = await ownOf(http())
      const known = store.getItem(name) ?? ''
      // Rows are those of a role. One that is not told is that of the sign-in, which forgets the name.
      const ids = JSON.stringify([own.user.id, own.tenant])
      const role = 'role' in own ? own.role.id : known.startsWith(ids) ? known.slice(ids.length) : crypto.randomUUID()
      const who = ids + role
      store.setItem(name, who)
      return who
    } catch (error) {
      owner = undefined
      return error instanceof DaybookError && error.status === 0 ? (store.getItem(name) ?? undefined) : undefined
    }
  }
  const become = (next: SessionState) => {
    if (next === state) return
    state = next
    listeners.tell(next)
  }
  return {
    token: async () => undefined,
    headers: async () => ({}),
    take(body) {
      owner = undefined
      store.removeItem(name)
      if ('user' in body) become('signed in')
      return body
    },
    forget() {
      owner = undefined
      store.removeItem(name)
      become('signed out')
    },
    onUnauthorized() {
      become('signed out')
      return false
    },
    get state() {
      return state
    },
    onChange: listeners.add,
    authMode: 'cookie',
    owner() {
      owner ??= askOwner()
      return owner
    },
    close: () => undefined,
  }
}

const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` })

/** `shared`: a store that other clients may use too; without one the token is this client's alone. */
function tokenSession(name: string, shared: KeyValueStore | undefined, http: () => Http): Session {
  const listeners = listenersOf()
  const { stored, put, inOneTab, close } = keptToken(name, shared ?? memoryStore(), {
    onState: listeners.tell,
    onToken: () => renewal.look(),
  })
  let renewing: Promise<void> | undefined

  /** Another client of the store may have renewed the token, which ends it, and have no answer yet. */
  const newer = async (old: string) => {
    for (let n = 0; n < mostLooks && shared !== undefined && stored() === old; n += 1)
      await pause(lookAgainMs, undefined)
  }
  /** Renewing ends the token that is sent. */
  const renew = async (due: string) => {
    // Another tab was first.
    if (stored() !== due) return
    try {
      const options = { method: 'POST', body: { authMode: 'jwt' }, headers: bearer(due), isAnonymous: true } as const
      put((await http().ask<{ token: string }>('/auth/refresh', options)).token)
    } catch (error) {
      // While it is valid it is of use, and the next request tries again.
      if (!(error instanceof DaybookError && error.status === 401)) return
      await newer(due)
      if (stored() === due) put(undefined)
    }
  }
  const current = async (): Promise<string | undefined> => {
    const token = stored()
    if (token === undefined || !isDue(token)) return token
    renewing ??= inOneTab(() => renew(token)).finally(() => {
      renewing = undefined
    })
    await renewing
    return stored()
  }
  // A page that only listens asks for no token.
  const renewal = openRenewal(() => {
    const token = stored()
    const life = token === undefined ? undefined : lifeOf(token)
    return life && { name: token!, life }
  }, current)

  return {
    token: current,
    async headers() {
      const before = stored()
      const token = await current()
      if (token !== undefined) return bearer(token)
      if (before === undefined) return {}
      // What was asked for as a user is not for everybody, and what is written is not by nobody.
      throw new DaybookError('The session has ended', { status: 401, code: 'SESSION_ENDED' })
    },
    take(body) {
      const { token, ...rest } = body as { token?: string }
      if (token !== undefined) put(token)
      return rest as typeof body
    },
    forget: () => put(undefined),
    async onUnauthorized({ authorization }) {
      const asked = stored()
      if (asked !== undefined && bearer(asked).authorization === authorization && isDue(asked)) await newer(asked)
      const token = stored()
      if (token === undefined) return false
      // Another tab, or another request, has renewed it while this one was on its way.
      if (bearer(token).authorization !== authorization) return true
      put(undefined)
      return false
    },
    get state() {
      return stored() === undefined ? 'signed out' : 'signed in'
    },
    onChange: listeners.add,
    authMode: 'jwt',
    owner: async () => ownerOf(await current()),
    close() {
      renewal.close()
      close()
    },
  }
}

type TokenListeners = {
  onState(state: SessionState): void
  /** It may be another one, or the page has been asleep. */
  onToken(): void
}

/** The token as all tabs of the page have it, where it is kept by the page. */
function keptToken(name: string, store: KeyValueStore, { onState, onToken }: TokenListeners) {
  const stored = () => store.getItem(name) ?? undefined
  const put = (token: string | undefined) => {
    const before = stored()
    if (token === undefined) store.removeItem(name)
    else store.setItem(name, token)
    if ((before === undefined) !== (token === undefined)) onState(token === undefined ? 'signed out' : 'signed in')
    onToken()
  }
  const onStorage = (event: StorageEvent) => {
    if (event.key !== name) return
    onState(event.newValue === null ? 'signed out' : 'signed in')
    onToken()
  }
  const hasTabs = typeof window !== 'undefined' && store === pageStorage()
  if (hasTabs) {
    window.addEventListener('storage', onStorage)
    window.addEventListener('online', onToken)
    document.addEventListener('visibilitychange', onToken)
  }
  return {
    stored,
    put,
    /** One tab works for all of them. */
    inOneTab: (work: () => Promise<void>): Promise<void> =>
      hasTabs && 'locks' in navigator ? navigator.locks.request(name, work) : work(),
    close: () => {
      if (!hasTabs) return
      window.removeEventListener('storage', onStorage)
      window.removeEventListener('online', onToken)
      document.removeEventListener('visibilitychange', onToken)
    },
  }
}

/** Whether most of its life is over. A text that is no JSON Web Token is never due. */
function isDue(token: string): boolean {
  const life = lifeOf(token)
  return life !== undefined && Date.now() > life.begins + (life.ends - life.begins) * renewAt
}

function lifeOf(token: string): Life | undefined {
  const { iat, exp } = claimsOf(token)
  return typeof iat === 'number' && typeof exp === 'number' ? { begins: iat * 1000, ends: exp * 1000 } : undefined
}

/** The claims of a JSON Web Token; none for any other text. */
function claimsOf(token: string): Readonly<Record<string, unknown>> {
  try {
    return JSON.parse(atob(token.split('.')[1]!.replaceAll('-', '+').replaceAll('_', '/')))
  } catch {
    return {}
  }
}

/** The part of a token that survives renewals; an API key does not reveal its owner. */
function ownerOf(token: string | undefined): string | undefined {
  const { iat: _iat, exp: _exp, sessionToken: _session, jti: _id, ...who } = claimsOf(token ?? '')
  return Object.keys(who).length === 0 ? undefined : JSON.stringify(who)
}

function pageStorage(): KeyValueStore | undefined {
  try {
    return typeof window === 'undefined' ? undefined : window.localStorage
  } catch {
    // A page may be forbidden to keep anything.
    return undefined
  }
}

function pageStore(): KeyValueStore {
  return pageStorage() ?? memoryStore()
}

/** Forgets everything with the process. */
function memoryStore(): KeyValueStore {
  const kept = new Map<string, string>()
  return {
    getItem: (name) => kept.get(name) ?? null,
    setItem: (name, value) => void kept.set(name, value),
    removeItem: (name) => void kept.delete(name),
  }
}
