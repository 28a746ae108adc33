import { beforeAll, expect, it } from 'vitest'
import type { App } from '../../src/http/http.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { asSuperuser } from '../support/log.ts'
import { describeWithRedis, startRedis } from '../support/redis.ts'
import { withClient } from '../support/server.ts'
import { startUpstash } from '../support/upstash.ts'
import { waitFor } from '../support/wait.ts'

/**
 * What a process that hears no notification does: it finds out by Redis, or when its rules have come of age. A
 * change behind the triggers' back stands for one whose notification was lost.
 */
describeWithRedis('a change that nobody was notified of', () => {
  let api: Api
  let redisUrl: string
  beforeAll(async () => {
    redisUrl = (await startRedis()).url
    api = await startApi()
    await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields: { text: { type: 'String' } } } })
  })

  const silently = (statement: string) =>
    withClient(asSuperuser(api.database.url), (client) =>
      client.query(`begin; set local session_replication_role = replica; ${statement}; commit`),
    )
  const mayRead = async (app: App) => (await app.inject({ url: '/items/note' })).statusCode === 200
  const nameOf = async (app: App) => (await app.inject({ url: '/settings' })).json().data.project_name
  const grant = async () => {
    const [role] = await api.sql(`select id from "svc_Role" where name = 'public'`)
    const made = await api.admin('POST', '/permissions', {
      role_Id: role.id,
      collection: 'note',
      action: 'read',
      fields: '*',
    })
    return made.body.id as string
  }

  it('counts when one process has read it and the others look at Redis', async () => {
    const upstash = await startUpstash(redisUrl)
    const slow = { SYSTEM_CACHE_TTL: '3600', SYSTEM_CACHE_SYNC_INTERVAL: '1' }
    const byRedis = { ...slow, SYSTEM_CACHE_ADAPTER: 'redis', SYSTEM_CACHE_REDIS_URL: redisUrl }
    const byUpstash = {
      ...slow,
      SYSTEM_CACHE_ADAPTER: 'upstash',
      UPSTASH_REDIS_REST_URL: upstash.url,
      UPSTASH_REDIS_REST_TOKEN: upstash.token,
    }
    const apps = [await configured(api.database, byRedis), await configured(api.database, byUpstash)]
    const id = await grant()
    for (const app of apps) await waitFor(() => mayRead(app))
    await silently(`delete from "svc_Permission" where id = '${id}'`)
    await silently(`update "svc_Settings" set project_name = 'silent'`)
    expect(await Promise.all(apps.map(mayRead))).toEqual([true, true])
    const teller = await configured(api.database, byRedis)
    await waitFor(async () => (await nameOf(teller)) === 'silent')
    for (const app of apps) await waitFor(async () => !(await mayRead(app)) && (await nameOf(app)) === 'silent')
  })

  it('counts after SYSTEM_CACHE_TTL all the same', async () => {
    const app = await configured(api.database, { SYSTEM_CACHE_TTL: '1' })
    const id = await grant()
    await waitFor(() => mayRead(app))
    await silently(`delete from "svc_Permission" where id = '${id}'`)
    await silently(`update "svc_Settings" set project_name = 'quiet'`)
    await waitFor(async () => !(await mayRead(app)) && (await nameOf(app)) === 'quiet')
  })
})
