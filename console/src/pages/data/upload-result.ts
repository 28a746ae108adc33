import type { Explanation } from '../../app/refusals.ts'

/** A file that was not uploaded, and why. */
export type Refused = { readonly name: string; readonly why: Explanation }

/** What became of files that were to be uploaded one after the other. */
export type UploadResult = {
  readonly chosen: number
  readonly uploaded: number
  readonly refused: readonly Refused[]
  /** By the person who began it. */
  readonly isStopped: boolean
}

/** Whether the other files would fare no better: the status is not about the file. */
export const endsUpload = (status: number): boolean => status === 0 || [401, 429].includes(status) || status >= 500

const mostNamed = 5

type Words = { readonly title: string; readonly text: string }

/** What a person is told of it: how many have arrived, and which have not, and why. */
export function inWords({ chosen, uploaded, refused, isStopped }: UploadResult): Words {
  const count = `${uploaded} of ${chosen} files were uploaded`
  const [first] = refused
  const title = chosen === 1 && first !== undefined ? `${first.name} was not uploaded` : count
  if (isStopped && first === undefined) return { title: 'The upload was stopped', text: chosen === 1 ? '' : count }
  const reasons = refused.slice(0, mostNamed).map(({ name, why: { title: reason, details } }) => {
    const whole = [reason, ...details].join('; ')
    return chosen === 1 ? whole : `${name}: ${whole}`
  })
  const more = refused.length - mostNamed
  const advice = new Set(refused.flatMap(({ why }) => why.advice ?? []))
  return { title, text: [...reasons, ...(more > 0 ? [`and ${more} more`] : []), ...advice].join(' · ') }
}
