import type { Logs } from '../../adapters/logger.ts'
import { openRedis } from '../../adapters/redis.ts'
import type { Configuration } from '../../config/config.ts'

/**
 * TASK_REDIS_ENABLED: of all task workers one at a time runs tasks, the others stand by. The claim in a task's row
 * keeps two workers from running it, so while Redis is away all workers go on without this lock.
 */
export type InstanceLock = {
  /** Whether this process may claim tasks now. */
  mayRun(): Promise<boolean>
  isHeld(): boolean
  release(): Promise<void>
}

const key = 'daybook:tasks:instance'
const lifetimeMs = 60_000
const renewMs = 20_000

const renewScript = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end
return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`
const releaseScript = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`

export function openInstanceLock(deps: Configuration & Logs, instanceId: string): InstanceLock {
  const { redisEnabled, redisUrl } = deps.config.tasks
  if (!redisEnabled) return { mayRun: async () => true, isHeld: () => false, release: async () => undefined }
  const redis = openRedis(redisUrl!, deps.log)
  let heldUntil = 0
  const renew = async () => {
    const asked = performance.now()
    const answer = await redis.run(renewScript, [key], [instanceId, lifetimeMs])
    heldUntil = answer === 1 ? asked + lifetimeMs : 0
  }
  const isHeld = () => performance.now() < heldUntil
  const timer = setInterval(() => {
    if (isHeld()) renew().catch((error: Error) => deps.log.warn({ err: error }, 'the lock of tasks was not renewed'))
  }, renewMs)
  return {
    isHeld,
    async mayRun() {
      if (isHeld()) return true
      try {
        await renew()
        return isHeld()
      } catch (error) {
        deps.log.warn({ err: error }, 'Redis does not answer: tasks run without its lock')
        return true
      }
    },
    async release() {
      clearInterval(timer)
      try {
        await redis.run(releaseScript, [key], [instanceId])
      } catch (error) {
        deps.log.warn({ err: error }, 'the lock of tasks was not given back; it lapses within a minute')
      }
      redis.close()
    },
  }
}
