import { QueryClient } from '@tanstack/react-query'
import { createClient } from '../../../clients/client.ts'

/** The server, as whoever is signed in. The session is a cookie: no script can read it, so none can lose it. */
export const client = createClient({
  auth: { mode: 'cookie' },
  keepsRows: false,
  fetch: async (...request) => {
    // A stranger would get other answers than the page has shown.
    if (toldAt !== undefined && (await checkSession())) return endOfSession()
    const response = await fetch(...request)
    const isRefused = response.status === 401 || response.status === 403
    return isRefused && (await checkSession()) ? endOfSession() : response
  },
})

const endOfSession = () => Response.json({ message: 'Your session has ended', code: 'SESSION_ENDED' }, { status: 401 })

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
      ({ ok, status }) => {
        if (status === 401) tellEnd()
        // Somebody may have signed in again in another tab.
        else if (ok) toldAt = undefined
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
