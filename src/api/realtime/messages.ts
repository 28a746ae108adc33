import type { Socket } from 'socket.io'
import { AppError } from '../../errors.ts'
import { statedRefusal } from '../../features/hooks/refusals.ts'
import { membersOfRequest } from '../../features/rooms/input.ts'
import type { Runtime } from '../../runtime.ts'
import { errorAnswer } from './error-answer.ts'
import { socketUser } from './users.ts'

/**
 * `custom {event, payload}`: to the handler that an extension has registered for the event. It answers by `ack`, or by
 * what it returns where it takes no `ack`. Whatever it throws is answered and logged; the process and the socket go on.
 */
export async function dispatchMessage(rt: Runtime, socket: Socket, request: unknown, ack: unknown): Promise<void> {
  const { event, payload } = membersOfRequest(request)
  const reply = once(ack)
  const handler = typeof event === 'string' ? rt.sockets.handlers.get(event) : undefined
  if (handler === undefined) {
    reply(
      errorAnswer(new AppError(404, `No handler registered for event: ${nameOf(event)}`, { code: 'UNKNOWN_EVENT' })),
    )
    return
  }
  try {
    const answer = await handler.fn(socketUser(rt, socket), payload, reply)
    if (answer !== undefined || handler.fn.length < 3) reply({ status: 'success', data: answer ?? null })
  } catch (error) {
    const refusal = statedRefusal(error)
    if (refusal === undefined) rt.log.error({ err: error, extension: handler.owner, event }, 'a handler failed')
    reply(errorAnswer(refusal ?? error))
  }
}

function once(ack: unknown): (answer: unknown) => void {
  let isAnswered = typeof ack !== 'function'
  return (answer) => {
    if (isAnswered) return
    isAnswered = true
    ;(ack as (answer: unknown) => void)(answer)
  }
}

const nameOf = (event: unknown) => (typeof event === 'string' ? event.slice(0, 128) : typeof event)
