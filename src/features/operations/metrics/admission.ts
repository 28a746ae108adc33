import type { Reading } from '../../../adapters/metrics.ts'
import { hashing } from '../../../adapters/passwords.ts'
import type { AdmissionLane, LaneStats } from '../../../admission/lane.ts'
import type { Meters } from './instruments.ts'

/** Who got a place, who waits for one and who was refused, by lane and weight (docs/overload.md). */
export function registerAdmissionGauges(rt: AdmissionLane & Meters): void {
  const { metrics } = rt.instruments
  const lanes = { reads: rt.admission, passwords: hashing }
  const labelNames = ['lane', 'weight']
  const read = (part: keyof LaneStats) => () =>
    Object.entries(lanes).flatMap(([lane, { stats }]) =>
      Object.entries(stats()[part]).map(([weight, value]): Reading => ({ labels: { lane, weight }, value })),
    )
  metrics.gauge({ name: 'daybook_admission_running', help: 'Work that holds a place.', labelNames }, read('running'))
  metrics.gauge(
    { name: 'daybook_admission_waiting', help: 'Work that waits for a place.', labelNames },
    read('waiting'),
  )
  metrics.counter(
    { name: 'daybook_admission_admitted_total', help: 'Work that has got a place.', labelNames },
    read('admitted'),
  )
  metrics.counter(
    { name: 'daybook_admission_refused_total', help: 'Work that was refused with OVERLOADED.', labelNames },
    read('refused'),
  )
}
