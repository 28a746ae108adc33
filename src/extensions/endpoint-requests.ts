import { AsyncLocalStorage } from 'node:async_hooks'
import type { RepeatableRequest } from '../db/unlogged/requests.ts'
import type { Actor } from '../events/types.ts'

/** A request that an endpoint answers. */
type EndpointRequest = {
  /** What is known of it now: of a body that the endpoint reads itself it is known later. */
  readonly repeatable: () => RepeatableRequest | undefined
  /** Refuses its writes where its caller may write nothing. */
  readonly guard: Actor['guard']
  /** What goes on after the answer is not part of the request. */
  readonly isAnswered: () => boolean
}

const requests = new AsyncLocalStorage<EndpointRequest>()

/** Runs the code of an endpoint so that what it writes, as whomever, is known as part of this request. */
export const duringRequest = <Result>(request: EndpointRequest, work: () => Result): Result =>
  requests.run(request, work)

/** The request of the endpoint that asks, where its client may repeat it. */
export function repeatableOfEndpoint(): RepeatableRequest | undefined {
  const request = requests.getStore()
  return request === undefined || request.isAnswered() ? undefined : request.repeatable()
}

/** What refuses the writes of the endpoint that asks, also those that go on after its answer. */
export const guardOfEndpoint = (): Actor['guard'] => requests.getStore()?.guard
