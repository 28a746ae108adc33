import { createHash, timingSafeEqual } from 'node:crypto'
import type { Config } from '../../../config/config.ts'

export { registerGauges, registerProcessGauges } from './gauges.ts'
export type { Meters } from './instruments.ts'

/** Whether a request carries METRICS_TOKEN as its bearer token. Takes as long for a near miss as for any other. */
export function holdsMetricsToken({ observability }: Config, authorization: string | undefined): boolean {
  const { metricsToken } = observability
  const [, given] = /^bearer +(\S+) *$/i.exec(authorization ?? '') ?? []
  if (metricsToken === undefined || given === undefined) return false
  return timingSafeEqual(digest(given), digest(metricsToken))
}

const digest = (text: string): Buffer => createHash('sha256').update(text).digest()
