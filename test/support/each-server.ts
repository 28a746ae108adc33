import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { afterAll } from 'vitest'
import type { App } from '../../src/http/http.ts'

/**
 * Calls back for each server that the test file makes, before its first route. Not for those of the files after it, which share
 * the process: with one more subscriber per file, every answer was checked as often as files had run.
 */
export function onEachServer(begin: (server: App) => void): void {
  const look = (message: unknown) => begin((message as { fastify: App }).fastify)
  subscribe('fastify.initialization', look)
  afterAll(() => void unsubscribe('fastify.initialization', look))
}
