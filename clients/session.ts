import { DaybookError, type Http, pause, until, within } from './http.ts'
import { type Life, openRenewal, renewAt } from './renewal.ts'
import { claimsOf, openTokenLives } from './token-life.ts'

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
  /**
   * Called when somebody signs in or out, in this tab or another one: with `signed in` once more where somebody else does, or
   * the same user at another tenant. Gives what ends it.
   */
  onChange(listener: (state: SessionState) => void): () => void
  /** The server has taken a connection for that of this user. */
  connected(user: string, tenant: string | null): void
  readonly authMode: 'jwt' | 'cookie'
  /** The owner of rows kept under this name; undefined if unknown. */
  owner(): Promise<string | undefined>
  close(): void
}

/** How often, and how long after one another, to look for the token that another client has renewed. */
const mostLooks = 5
const lookAgainMs = 400

/** An attempt to renew a token has failed when it has no answer after this. */
const renewalMs = 15_000
/** Requests wait so long for it while the token of now is still good. */
const patienceMs = 2000
/** After a failed one they do not begin the next one at once. */
const nextAttemptMs = 5000

/** `keepsNames`: with cookies, whether the page may keep who is signed in. */
export function openSession(url: string, auth: AuthOptions, http: () => Http, keepsNames: boolean): Session {
  if ('token' in auth) return fixedSession(auth.token)
  if (auth.mode === 'cookie')
    return cookieSession(`daybook:${url}:user`, http, keepsNames ? pageStore() : memoryStore())
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
    connected: () => undefined,
    authMode: 'jwt',
    owner: async () => ownerOf(await current()),
    close: () => undefined,
  }
}

/** `name`: under it the store keeps who is signed in, for other tabs and for when the server cannot be asked. */
function cookieSession(name: string, http: () => Http, store: KeyValueStore): Session {
  const listeners = listenersOf()
  /** User and tenant, as far as anything has told. */
  let ids: string | undefined
  let owner: Promise<string | undefined> | undefined
  const become = (next: string | undefined) => {
    if (next === ids) return
    if (ids !== undefined) owner = undefined
    ids = next
    listeners.tell(stateOf(next))
  }
  /** Rows are those of a role. One that is not told is that of the sign-in. */
  const keep = (own: SignedIn | OwnIds, known: string) => {
    const next = idsOf(own.user.id, own.tenant)
    const role = 'role' in own ? own.role.id : known.startsWith(next) ? known.slice(next.length) : crypto.randomUUID()
    try {
      store.setItem(name, next + role)
    } catch {
      // A page that has no room keeps nothing; its other tabs learn it from their connections.
    }
    become(next)
    return next + role
  }
  const forget = () => {
    owner = undefined
    store.removeItem(name)
    become(undefined)
  }
  const askOwner = (): Promise<string | undefined> => {
    const asked: Promise<string | undefined> = ownOf(http()).then(
      // Somebody else may have signed in meanwhile.
      (own) => (owner === asked ? keep(own, store.getItem(name) ?? '') : undefined),
      (error: unknown) => {
        if (owner === asked) owner = undefined
        return error instanceof DaybookError && error.status === 0 ? (store.getItem(name) ?? undefined) : undefined
      },
    )
    return asked
  }
  const stopWatching = watchPage(store, name, (kept) => {
    owner = undefined
    // The role comes after the ids.
    become(kept?.slice(0, kept.indexOf(']') + 1))
  })
  return {
    token: async () => undefined,
    headers: async () => ({}),
    take(body) {
      // Who still has to prove the address is not signed in.
      if ('user' in body && !('requiresEmailVerification' in body)) {
        owner = undefined
        keep(body as unknown as SignedIn | OwnIds, '')
      }
      return body
    },
    forget,
    onUnauthorized() {
      forget()
      return false
    },
    get state() {
      return stateOf(ids)
    },
    onChange: listeners.add,
    connected: (user, tenant) => become(idsOf(user, tenant)),
    authMode: 'cookie',
    owner() {
      owner ??= askOwner()
      return owner
    },
    close: stopWatching,
  }
}

const stateOf = (who: string | undefined): SessionState => (who === undefined ? 'signed out' : 'signed in')

/** `tenant`: its row, or its id. */
const idsOf = (user: string, tenant: unknown): string => JSON.stringify([user, Object(tenant).id ?? tenant ?? null])

const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` })

/** `shared`: a store that other clients may use too; without one the token is this client's alone. */
function tokenSession(name: string, shared: KeyValueStore | undefined, http: () => Http): Session {
  const listeners = listenersOf()
  const { stored, put, look, lifeOf, inOneTab, close } = keptToken(name, shared ?? memoryStore(), {
    onState: listeners.tell,
    onToken: () => renewal.look(),
  })
  let attempt: Attempt | undefined
  let restsUntil = 0
  /** A text that is no JSON Web Token is never due. */
  const isDue = (token: string): boolean => {
    const life = lifeOf(token)
    return life !== undefined && isMostlyOver(life)
  }

  /** Another client of the store may have renewed the token, which ends it, and have no answer yet. */
  const newer = async (old: string) => {
    for (let n = 0; n < mostLooks && shared !== undefined && stored() === old; n += 1)
      await pause(lookAgainMs, undefined)
  }
  /** Renewing ends the token that is sent. */
  const renew = async (due: string, signal: AbortSignal) => {
    // Another tab was first.
    if (stored() !== due) return
    try {
      const body = { authMode: 'jwt' }
      const options = { method: 'POST', body, headers: bearer(due), isAnonymous: true, signal } as const
      const { token } = await http().ask<{ token: string }>('/auth/refresh', options)
      // Somebody may have signed in or out meanwhile.
      if (stored() === due) put(token)
    } catch (error) {
      // While it is valid it is of use, and the next request tries again.
      if (!(error instanceof DaybookError && error.status === 401)) return
      await newer(due)
      if (stored() === due) put(undefined)
    }
  }
  /** Of one at a time. Where it fails, the token stays, and a later one may succeed. */
  const renewed = (due: string): Attempt => {
    if (attempt !== undefined) return attempt
    const work = within(renewalMs, (signal) => inOneTab(() => until(renew(due, signal), signal), signal))
    const over = () => {
      attempt = undefined
      restsUntil = Date.now() + nextAttemptMs
    }
    attempt = { beganAt: Date.now(), over: work.then(over, over) }
    return attempt
  }
  const current = async (): Promise<string | undefined> => {
    const token = look()
    const life = token === undefined ? undefined : lifeOf(token)
    if (token === undefined || life === undefined || !isMostlyOver(life)) return token
    if (Date.now() >= life.ends) await renewed(token).over
    else if (attempt !== undefined || !isWithin(restsUntil, nextAttemptMs)) await patiently(renewed(token))
    return stored()
  }
  /** Nobody waits for it. */
  const renewIfDue = async () => {
    const token = look()
    if (token !== undefined && isDue(token)) await renewed(token).over
  }
  // A page that only listens asks for no token.
  const renewal = openRenewal(() => {
    const token = stored()
    const life = token === undefined ? undefined : lifeOf(token)
    return life && { name: token!, life }
  }, renewIfDue)

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
      const wasDue = asked !== undefined && bearer(asked).authorization === authorization && isDue(asked)
      if (wasDue) await renewed(asked).over
      const token = stored()
      if (token === undefined) return false
      // Another tab, or another request, has renewed it while this one was on its way.
      if (bearer(token).authorization !== authorization) return true
      // Its renewal may be lost on the way, and the next attempt bring what has replaced it.
      if (!wasDue) put(undefined)
      return false
    },
    get state() {
      return stateOf(stored())
    },
    onChange: listeners.add,
    // The token says whose it is.
    connected: () => undefined,
    authMode: 'jwt',
    owner: async () => ownerOf(await current()),
    close() {
      renewal.close()
      close()
    },
  }
}

type Attempt = { readonly beganAt: number; readonly over: Promise<void> }

/** Waits for an attempt, but not for one that gets no answer. */
async function patiently({ beganAt, over }: Attempt): Promise<void> {
  if (!isWithin(beganAt + patienceMs, patienceMs)) return
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, beganAt + patienceMs - Date.now())
  await Promise.race([over, promise])
  clearTimeout(timer)
}

/** Before `end`, and not so long before that a clock must have been set back. */
const isWithin = (end: number, ms: number): boolean => end > Date.now() && end - Date.now() <= ms

type TokenListeners = {
  onState(state: SessionState): void
  /** It may be another one, or the page has been asleep. */
  onToken(): void
}

/** The token as all tabs of the page have it, where it is kept by the page. */
function keptToken(name: string, store: KeyValueStore, { onState, onToken }: TokenListeners) {
  const stored = () => store.getItem(name) ?? undefined
  const lives = openTokenLives(name, store)
  let known = stored()
  /** The token of now, after what has changed with it is told: other clients of the store do not always tell of theirs. */
  const look = () => {
    const [before, token] = [known, stored()]
    known = token
    if (token !== before && (stateOf(token) !== stateOf(before) || ownerOf(token) !== ownerOf(before)))
      onState(stateOf(token))
    return token
  }
  const put = (token: string | undefined) => {
    if (token === undefined) {
      store.removeItem(name)
      lives.forget()
    } else {
      store.setItem(name, token)
      lives.received(token)
    }
    look()
    onToken()
  }
  const stopWatching = watchPage(store, name, () => {
    look()
    onToken()
  })
  const hasTabs = isOfPage(store)
  if (hasTabs) {
    window.addEventListener('online', onToken)
    document.addEventListener('visibilitychange', onToken)
  }
  return {
    stored,
    put,
    look,
    lifeOf: lives.lifeOf,
    /** One tab works for all of them. `signal`: how long this one waits for the others. */
    inOneTab: (work: () => Promise<void>, signal: AbortSignal): Promise<void> =>
      hasTabs && 'locks' in navigator ? navigator.locks.request(name, { signal }, work) : work(),
    close: () => {
      stopWatching()
      if (!hasTabs) return
      window.removeEventListener('online', onToken)
      document.removeEventListener('visibilitychange', onToken)
    },
  }
}

/** Whether most of it is over. */
const isMostlyOver = ({ begins, ends }: Life): boolean => Date.now() > begins + (ends - begins) * renewAt

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

const isOfPage = (store: KeyValueStore): boolean => typeof window !== 'undefined' && store === pageStorage()

/** Calls with what another tab of the page has put under the name, or undefined where it has removed it. Gives what ends that. */
function watchPage(store: KeyValueStore, name: string, onPut: (text: string | undefined) => void): () => void {
  if (!isOfPage(store)) return () => undefined
  const onStorage = ({ key, newValue }: StorageEvent) => {
    if (key === name) onPut(newValue ?? undefined)
  }
  window.addEventListener('storage', onStorage)
  return () => window.removeEventListener('storage', onStorage)
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
