import { QueryClient } from '@tanstack/react-query'
import { createClient } from '../../../clients/client.ts'

/** The server, as whoever is signed in. The session is a cookie: no script can read it, so none can lose it. */
export const client = createClient({
  auth: { mode: 'cookie' },
  keepsRows: false,
  fetch: async (...request) => {
    // A stranger would get other answers than the page has shown.
    if (toldAt !== undefined && (await checkSession())) return endOfSession()
    // Another tab may have signed somebody else in, or gone on at another tenant: the page would write there unseen.
    if (mustBeSure(...request) && (await checkSession())) return endOfSession()
    if (isOthers && mustBeSure(...request)) return changeOfSession()
    const response = await fetch(...request)
    const isRefused = response.status === 401 || response.status === 403
    return isRefused && (await checkSession()) ? endOfSession() : response
  },
})

const endOfSession = () => Response.json({ message: 'Your session has ended', code: 'SESSION_ENDED' }, { status: 401 })

/** As far as is known, the session is no longer of the user and the tenant that the page shows. */
let isOthers = false
/** Whom the page shows, as text. */
let shown: string | undefined

const textOf = (userId: string, tenantId: string | undefined) => JSON.stringify([userId, tenantId ?? null])

const changeOfSession = () =>
  Response.json(
    { message: 'You are signed in as another user or at another tenant by now', code: 'SESSION_CHANGED' },
    { status: 409 },
  )

/** What leaves the session, or changes it on purpose, may come from any page. */
const ofSession = /\/auth\/(?:logout|switch-tenant|preview)\b/

function mustBeSure(address: RequestInfo | URL, init?: RequestInit): boolean {
  const path = address instanceof Request ? address.url : String(address)
  if (ofSession.test(path)) return false
  const method = init?.method ?? (address instanceof Request ? address.method : 'GET')
  return isOthers || (method !== 'GET' && method !== 'HEAD')
}

/** Whether the page goes on showing this user: the first one, until somebody signs in on the page itself. */
export function isShown(userId: string, tenantId: string | undefined): boolean {
  shown ??= textOf(userId, tenantId)
  noteOwner(userId, tenantId)
  return !isOthers
}

/** The page shows nobody. */
export function showNobody(): void {
  shown = undefined
  isOthers = false
}

const onSessionChange = new Set<() => void>()

/** Calls when the session turns out to be another user's or at another tenant than the page shows. Gives what ends that. */
export function whenSessionChanges(listener: () => void): () => void {
  onSessionChange.add(listener)
  return () => void onSessionChange.delete(listener)
}

function noteOwner(userId: string, tenantId: string | undefined): void {
  const before = isOthers
  isOthers = shown !== undefined && shown !== textOf(userId, tenantId)
  if (isOthers !== before) for (const listener of onSessionChange) listener()
}

/** Whether the session is another's, for `useSyncExternalStore` beside `whenSessionChanges`. */
export const isOfOthers = (): boolean => isOthers

// Who comes back to this tab may have signed in or switched the tenant in another one.
document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'visible') void checkSession()
})

const onSessionEnd = new Set<() => void>()

/** Calls when the server no longer knows the session, once for each page that is shown without it. Gives what ends that. */
export function whenSessionEnds(listener: () => void): () => void {
  onSessionEnd.add(listener)
  return () => void onSessionEnd.delete(listener)
}

/** The page that was told of the end of the session. Undefined while the session lasts, as far as is known. */
let toldAt: string | undefined
let checking: Promise<boolean> | undefined

/**
 * Asks whether the session has ended. The server takes users without one for strangers, and refuses them as it refuses users
 * who lack a permission.
 */
export function checkSession(): Promise<boolean> {
  // Where nobody is known to be signed in, nothing has ended.
  if (!queryClient.getQueryData(['me'])) return Promise.resolve(false)
  checking ??= fetch('/auth/check')
    .then(
      async (answer) => {
        if (answer.status === 401) tellEnd()
        if (!answer.ok) return
        // Somebody may have signed in again in another tab.
        toldAt = undefined
        const { user, tenant }: { user: { id: string }; tenant?: { id: string } | null } = await answer.json()
        noteOwner(user.id, tenant?.id)
      },
      () => undefined,
    )
    .then(() => toldAt !== undefined)
    .finally(() => {
      checking = undefined
    })
  return checking
}

function tellEnd(): void {
  // A form may hold the page, whose requests go on.
  if (toldAt === location.pathname) return
  toldAt = location.pathname
  for (const listener of onSessionEnd) listener()
}

/** Answers are kept while they are shown. The client itself repeats the requests that are worth it. */
export const queryClient = new QueryClient({
  defaultOptions: { queries: { retry: false, staleTime: 30_000 }, mutations: { retry: false } },
})
