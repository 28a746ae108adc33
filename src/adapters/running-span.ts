import { AsyncLocalStorage } from 'node:async_hooks'

/** The span in which something happens, as far as others need to know it. */
export type RunningSpan = {
  /** The header of W3C Trace Context: ids and whether it is recorded, nothing else. */
  readonly traceparent: string
  readonly logged: { readonly trace_id: string; readonly span_id: string }
}

/** Empty for ever where nothing is traced. */
export const runningSpan = new AsyncLocalStorage<RunningSpan>()

/** What log lines carry, so that a trace leads to its lines and back. */
export function traceIds(): object {
  return runningSpan.getStore()?.logged ?? {}
}
