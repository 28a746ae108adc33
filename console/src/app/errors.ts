import { DaybookError } from '../../../clients/client.ts'
import { queryClient } from './client.ts'
import { type Explanation, inWords } from './refusals.ts'
import { meQuery } from './session.ts'

/** An error in words for a person: what, why, and what to do. */
export function explain(error: unknown): Explanation {
  if (error instanceof DaybookError) return inWords(error, queryClient.getQueryData(meQuery.queryKey)?.isAdmin)
  return {
    title: error instanceof Error ? error.message : String(error),
    details: [],
    advice: undefined,
    requestId: undefined,
  }
}
