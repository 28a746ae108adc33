import { MutationCache, QueryCache, QueryClient } from '@tanstack/react-query'
import { createClient, DaybookError } from '../../../clients/client.ts'

/** The server, as whoever is signed in. The session is a cookie: no script can read it, so none can lose it. */
export const client = createClient({ auth: { mode: 'cookie' }, keepsRows: false })

const onSessionEnd = new Set<() => void>()

/** Calls when the server no longer knows the session. Gives what ends that. */
export function whenSessionEnds(listener: () => void): () => void {
  onSessionEnd.add(listener)
  return () => void onSessionEnd.delete(listener)
}

const onError = (error: unknown) => {
  if (error instanceof DaybookError && error.status === 401) for (const listener of onSessionEnd) listener()
}

/** Answers are kept while they are shown. The client itself repeats the requests that are worth it. */
export const queryClient = new QueryClient({
  queryCache: new QueryCache({ onError }),
  mutationCache: new MutationCache({ onError }),
  defaultOptions: { queries: { retry: false, staleTime: 30_000 }, mutations: { retry: false } },
})
