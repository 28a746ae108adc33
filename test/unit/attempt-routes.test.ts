import Fastify from 'fastify'
import { expect, it } from 'vitest'
import { attemptRoutes, attemptsOf } from '../../src/api/limits.ts'
import { authPublicRoutes } from '../../src/features/accounts/auth/routes.ts'
import { socialRoutes } from '../../src/features/accounts/social/routes.ts'
import type { App } from '../../src/http/http.ts'

it('every route of /auth that needs no session has a budget in the table of api/limits.ts', async () => {
  const routes: string[][] = []
  const app = Fastify()
  app.addHook('onRoute', ({ method, url }) => void routes.push(...[method].flat().map((name) => [name, url])))
  for (const register of [authPublicRoutes, socialRoutes])
    app.register(async (scope) => register(scope as unknown as App, {} as never))
  await app.ready()
  expect(routes.length).toBeGreaterThan(8)
  expect(routes.filter(([method, url]) => attemptsOf(method!, url!) === undefined)).toEqual([])
})

it('a route is found whatever its parameters are called, and by HEAD as by GET', () => {
  expect(attemptsOf('GET', '/auth/magiclink/:code')).toBe(attemptRoutes['GET /auth/magiclink/:token'])
  expect(attemptsOf('HEAD', '/auth/magiclink/:code')).toBe(attemptRoutes['GET /auth/magiclink/:token'])
  expect(attemptsOf('POST', '/auth/magiclink/:code')).toBeUndefined()
})
