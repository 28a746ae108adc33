import { type TasksService, tasksServiceMethods } from '../../extensions/tasks-service.ts'
import type { FromRunner, ToRunner } from './protocol.ts'

/** The worker's TasksService, as handlers in a runner see it: every call is a message and its answer another. */
export function openCalls(say: (message: FromRunner) => void) {
  const waiting = new Map<number, PromiseWithResolvers<unknown>>()
  let last = 0
  const ask = (method: string, args: readonly unknown[]) => {
    last += 1
    const answered = Promise.withResolvers<unknown>()
    waiting.set(last, answered)
    say({ kind: 'call', call: last, method, args })
    return answered.promise
  }
  const methods = tasksServiceMethods.map((method) => [method, (...args: unknown[]) => ask(method, args)])
  return {
    service: Object.freeze(Object.fromEntries(methods)) as TasksService,
    answered({ call, result, error }: Extract<ToRunner, { kind: 'answer' }>) {
      const { resolve, reject } = waiting.get(call)!
      waiting.delete(call)
      if (error === undefined) resolve(result)
      else reject(new Error(error))
    },
  }
}
