import { useQuery } from '@tanstack/react-query'
import { useParams, useRouterState } from '@tanstack/react-router'
import { Puzzle } from 'lucide-react'
import { extensionsQuery } from '../../extensions/extensions.ts'
import { ExtensionFrame } from '../../extensions/frame.tsx'
import { Page } from '../../shell/page.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'

/** The page of an extension: all of it is the extension's, but for the heading. */
export function ExtensionPage() {
  const { name } = useParams({ from: '/shell/extensions/$name/$' })
  const path = useRouterState({
    select: ({ location }) => location.pathname.split('/').slice(3).join('/') + location.searchStr,
  })
  const { data, error, refetch } = useQuery(extensionsQuery)
  if (error !== null) return <Problem error={error} onRetry={() => void refetch()} />
  if (data === undefined) return <Loading />
  const extension = data.find((one) => one.name === name)
  if (extension === undefined || extension.page === null)
    return (
      <Empty icon={<Puzzle />} title="There is no such extension">
        <p>It is not installed here, has no page, or is not for you.</p>
      </Empty>
    )
  return (
    <Page title={extension.title} isFull>
      <ExtensionFrame
        key={name}
        extension={extension}
        file={extension.page}
        title={extension.title}
        place={{ kind: 'page', path: `/${path}` }}
      />
    </Page>
  )
}
