import { useQuery } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { client } from '../../app/client.ts'
import type { Row } from '../data/query.ts'
import type { Report } from './question.ts'
import { bodyOf } from './report.ts'

export type Outcome = {
  readonly rows: readonly Row[] | undefined
  readonly error: unknown
  /** `live`: the rows are those of now. `off`: they are followed, but the connection is not there or the report cannot be. */
  readonly following: 'live' | 'off' | undefined
  readonly retry: () => void
}

type Live = {
  readonly asked: string
  readonly rows: readonly Row[] | undefined
  readonly error: unknown
  readonly isLive: boolean
}

/** A connection that takes longer is not waited for: the report is then read by a request meanwhile. */
const patienceMs = 1500

/** The result of a report: as of a moment, once, or followed. */
export function useReport(
  report: Report,
  how: { readonly asOf: string | undefined; readonly isLive: boolean },
): Outcome {
  const { asOf } = how
  const isFollowed = how.isLive && asOf === undefined
  const body = bodyOf(report)
  const asked = JSON.stringify([report.collection, body])
  const [live, setLive] = useState<Live>()
  const [turn, setTurn] = useState(0)
  const followed = isFollowed && live?.asked === asked ? live : undefined
  const isRead = !isFollowed || (followed !== undefined && !followed.isLive && followed.rows === undefined)
  const { data, error, refetch } = useQuery({
    queryKey: ['report', asked, asOf],
    queryFn: async ({ signal }) => {
      const path = `/reports/${encodeURIComponent(report.collection)}`
      const question = asOf === undefined ? body : { ...body, asOf }
      return (await client.request<{ data: readonly Row[] }>(path, { method: 'POST', body: question, signal })).data
    },
    enabled: isRead,
    staleTime: 0,
  })
  useEffect(() => {
    if (!isFollowed) return
    const stop = follow(report, (state) => setLive({ asked, ...state }))
    return () => {
      stop()
      // The earlier result says nothing when the report is followed again.
      setLive(undefined)
    }
  }, [asked, isFollowed, turn])
  const retry = () => {
    setTurn((before) => before + 1)
    if (isRead) void refetch()
  }
  // The earlier result of the same report stands until the connection answers.
  const rows = followed?.rows ?? data
  return {
    rows,
    error: (isRead ? error : undefined) ?? followed?.error,
    following: followed === undefined ? undefined : followed.isLive ? 'live' : 'off',
    retry,
  }
}

function follow(report: Report, onState: (state: Omit<Live, 'asked'>) => void): () => void {
  // The server checks the values of the address.
  const query = { collection: report.collection, ...bodyOf(report) } as Pick<Report, 'collection' | 'aggregate'>
  const live = client.liveReport<string, Report['aggregate'], readonly string[]>(query)
  const show = () => {
    const { rows, status, error } = live.view
    const isKnown = status === 'live' || rows.length > 0
    onState({ rows: isKnown ? rows : undefined, error, isLive: status === 'live' })
  }
  const waiting = setTimeout(show, patienceMs)
  const stop = live.subscribe(show)
  if (live.view.status !== 'loading') show()
  return () => {
    clearTimeout(waiting)
    stop()
    live.close()
  }
}
