import { Link, Navigate, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { BookOpen } from 'lucide-react'
import { type ComponentType, Suspense } from 'react'
import { lazyComponent } from '../../app/lazy.ts'
import { Page } from '../../shell/page.tsx'
import { UnknownPage } from '../../shell/route-problem.tsx'
import { looks } from '../../ui/button.tsx'
import { Loading } from '../../ui/states.tsx'
import styles from './operations.module.css'
import type { OperationsSearch } from './routes.ts'
import { isSection, type SectionName, sectionTitles } from './sections.ts'

/** The properties of each section: its settings, and how it changes them. */
export type SectionProps = {
  readonly search: OperationsSearch
  readonly set: (change: OperationsSearch) => void
}

type SectionInfo = {
  readonly description: string
  readonly component: ComponentType<SectionProps>
}

const sections: Readonly<Record<SectionName, SectionInfo>> = {
  health: {
    description: 'What the installation lacks, and how to fix it.',
    component: lazyComponent(() => import('./health.tsx'), 'Health'),
  },
  jobs: {
    description: 'What the workers and tasks have to do, have done, and could not do.',
    component: lazyComponent(() => import('./jobs.tsx'), 'Jobs'),
  },
  schedules: {
    description: 'What runs at set times: of the platform, of extensions and of workflows.',
    component: lazyComponent(() => import('./jobs.tsx'), 'Schedules'),
  },
  mails: {
    description: 'Mails that wait, were sent, or failed, and why.',
    component: lazyComponent(() => import('./mails.tsx'), 'Mails'),
  },
  templates: {
    description: 'The texts of mails.',
    component: lazyComponent(() => import('./templates.tsx'), 'Templates'),
  },
  webhooks: {
    description: 'Who is told of changes, and what they answered.',
    component: lazyComponent(() => import('./webhooks.tsx'), 'Webhooks'),
  },
  workflows: {
    description: 'Workflows and their executions, node by node.',
    component: lazyComponent(() => import('./workflows.tsx'), 'Workflows'),
  },
  files: {
    description: 'Everything that was uploaded.',
    component: lazyComponent(() => import('./files.tsx'), 'Files'),
  },
  settings: {
    description: 'Of the installation. An empty field has no value of its own.',
    component: lazyComponent(() => import('./settings.tsx'), 'Settings'),
  },
  migrations: {
    description: 'Scripts that change the database, and which have run.',
    component: lazyComponent(() => import('./migrations.tsx'), 'Migrations'),
  },
  consumers: {
    description: 'Who follows the log, how far behind they are, and what they have set aside.',
    component: lazyComponent(() => import('./consumers.tsx'), 'Consumers'),
  },
}

/** `/operations` is its first section. */
export function Overview() {
  return <Navigate to="/operations/$section" params={{ section: 'health' }} replace />
}

export function Section() {
  const { section } = useParams({ from: '/shell/operations/$section' })
  const search = useSearch({ from: '/shell/operations/$section' })
  const navigate = useNavigate({ from: '/operations/$section' })
  if (!isSection(section)) return <UnknownPage />
  const { description, component: Content } = sections[section]
  const set = (change: OperationsSearch) => void navigate({ search: (before) => ({ ...before, ...change }) })
  return (
    <Page
      title={sectionTitles[section]}
      description={description}
      actions={
        <a {...looks({ kind: 'ghost' })} href="/docs" target="_blank" rel="noreferrer">
          <BookOpen aria-hidden="true" /> API
        </a>
      }
    >
      <nav className={styles.tabs} aria-label="Operations">
        {Object.entries(sectionTitles).map(([name, title]) => (
          <Link
            key={name}
            to="/operations/$section"
            params={{ section: name }}
            className={styles.tab}
            activeOptions={{ includeSearch: false }}
          >
            {title}
          </Link>
        ))}
      </nav>
      <Suspense fallback={<Loading />}>
        <Content key={section} search={search} set={set} />
      </Suspense>
    </Page>
  )
}
