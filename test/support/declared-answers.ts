import type { RouteOptions } from 'fastify'
import type { TSchema } from 'typebox'
import { afterAll, expect } from 'vitest'
import { fits, problemsOf } from '../../src/adapters/typebox.ts'
import { onEachServer } from './each-server.ts'

/** Answers longer than this are not looked at. Characters. */
const longest = 200_000

/** The first answer by what is wrong with it. */
const found = new Map<string, string>()

/**
 * Holds every JSON answer of the servers that a test file starts against what its route declares; the file fails where
 * one does not fit. Registered once per file, by importing it.
 */
onEachServer((fastify) => {
  fastify.addHook('onRoute', (route) => {
    const { summary, response } = (route.schema ?? {}) as { summary?: string; response?: Record<string, TSchema> }
    if (summary === undefined || response === undefined || response['4xx'] === undefined) return
    const check: Hook = (request, reply, payload, done) => {
      const type = String(reply.getHeader('content-type') ?? '')
      const isLooked = typeof payload === 'string' && payload !== '' && payload.length <= longest
      if (request.method !== 'HEAD' && isLooked && type.startsWith('application/json'))
        look(`${request.method} ${route.url} ${reply.statusCode}`, shapeOf(response, reply.statusCode), payload)
      done(null, payload)
    }
    route.onSend = [check, ...[route.onSend ?? []].flat()]
  })
})

type Hook = Extract<NonNullable<RouteOptions['onSend']>, readonly unknown[]>[number]

function shapeOf(response: Record<string, TSchema>, status: number): TSchema | undefined {
  return response[status] ?? response[status >= 400 ? '4xx' : '2xx']
}

function look(place: string, shape: TSchema | undefined, text: string): void {
  if (shape === undefined) return void found.set(`${place} is not declared`, text)
  const answer: unknown = JSON.parse(text)
  if (fits(shape, answer)) return
  const error = problemsOf(shape, answer).at(-1)
  found.set(`${place}: ${error?.instancePath} ${error?.message}`, text.slice(0, 500))
}

afterAll(() => expect([...found]).toEqual([]))
