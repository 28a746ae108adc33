import { MutationCache, QueryCache, QueryClient } from '@tanstack/react-query'
import { createClient, DaybookError } from '../../../clients/client.ts'

/** The server, as whoever is signed in. The session is a cookie: no script can read it, so none can lose it. */
export const client = createClient({
  auth: { mode: 'cookie' },
  keepsRows: false,
  fetch: async (...request) => {
    const response = await fetch(...request)
    if (response.status === 403) void checkSession()
    return response
  },
})

const onSessionEnd = new Set<() => void>()

/** Calls when the server no longer knows the session. Gives what ends that. */
export function whenSessionEnds(listener: () => void): () => void {
  onSessionEnd.add(listener)
  return () => void onSessionEnd.delete(listener)
}

const onError = (error: unknown) => {
  if (error instanceof DaybookError && error.status === 401) for (const listener of onSessionEnd) listener()
}

let checking: Promise<void> | undefined

/**
 * Asks whether the server still knows the session. It takes users without one for strangers, and refuses them as it refuses
 * users who lack a permission.
 */
export function checkSession(): Promise<void> {
  // Where nobody is known to be signed in, nothing has ended.
  if (!queryClient.getQueryData(['me'])) return Promise.resolve()
  checking ??= client
    .request('/auth/check')
    .then(
      () => undefined,
      (error: unknown) => (queryClient.getQueryData(['me']) ? onError(error) : undefined),
    )
    .finally(() => {
      checking = undefined
    })
  return checking
}

/** Answers are kept while they are shown. The client itself repeats the requests that are worth it. */
export const queryClient = new QueryClient({
  queryCache: new QueryCache({ onError }),
  mutationCache: new MutationCache({ onError }),
  defaultOptions: { queries: { retry: false, staleTime: 30_000 }, mutations: { retry: false } },
})
